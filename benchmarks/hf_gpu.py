"""Where the hf engine's time goes on a GPU: milliseconds a decoding step, and seconds to play episodes, by phase.

Prints a line for each number of rows and model, then one for each environment, each with what the time was spent on:

  wait      the worker waited for requests; the event loop (agents, environments, tokenizers) ran meanwhile
  place     requests got their slots, and what they share was copied
  prepare   the step was put together, before the model
  model     the model was called; on a GPU that starts kernels, which run on
  sample    sampling was called, and the outcome waited for: the rest of the device's time
  note      tokens were written down, stops found
  deliver   futures were resolved
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

ENVS = ("game:GuessTheNumber-v0-hard", "game:TowerofHanoi-v0-easy")


class Clock:
    """Times the phases of an engine from outside, by wrapping its methods."""

    def __init__(self, engine: Any) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.steps: list[tuple[int, int, float]] = []  # rows, tokens read, seconds
        batcher = engine._batcher
        for owner, method, phase in (
            (engine._settling, "wait", "wait"),
            (batcher, "_admit", "place"),
            (batcher, "_make_room_for_all", "place"),
            (batcher.arena, "settle", "place"),
            (batcher._rows, "batch", "prepare"),
            (batcher.runner, "forward", "model"),
            (batcher, "_sample", "sample"),
            (batcher, "_note", "note"),
            (engine, "_deliver", "deliver"),
        ):
            if owner is not None:
                self._wrap(owner, method, phase)
        step = batcher.step

        def timed(version: int) -> Any:
            began, sampled, fed = perf_counter(), batcher.stats.sampled, batcher.stats.fed
            done = step(version)
            self.steps.append((batcher.stats.sampled - sampled, batcher.stats.fed - fed, perf_counter() - began))
            return done

        batcher.step = timed

    def _wrap(self, owner: Any, method: str, phase: str) -> None:
        plain: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any, **options: Any) -> Any:
            began = perf_counter()
            try:
                return plain(*arguments, **options)
            finally:
                self.seconds[phase] += perf_counter() - began
                self.calls[phase] += 1

        setattr(owner, method, timed)

    def reset(self) -> None:
        self.seconds.clear()
        self.calls.clear()
        self.steps.clear()

    def report(self, per: float = 1.0, unit: str = "s") -> str:
        return ", ".join(f"{phase} {seconds / per:.3g}" for phase, seconds in self.seconds.items()) + f" ({unit})"


def smol() -> Any:
    """A random model of SmolLM2-135M's shape."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    model: Any = transformers.LlamaForCausalLM  # untyped
    return model(config).eval()


async def decode(name: str, model: Any, rows: int, tokens: int, prompt: int, kernels: bool) -> None:
    """Replies of equal length, all at once: after the first step there is nothing but decoding."""
    from palestra.engines import LocalEngine, Sampling

    rng = random.Random(0)
    prompts = [[rng.randrange(1000) for _ in range(prompt)] for _ in range(rows)]
    async with LocalEngine(model, device=str(model.device), slots=rows, eos_ids=()) as engine:
        clock = Clock(engine)

        async def all_of(count: int) -> None:
            await asyncio.gather(
                *(engine.generate(ids, Sampling(max_tokens=count, seed=at)) for at, ids in enumerate(prompts))
            )

        await all_of(4)
        clock.reset()
        await all_of(tokens)
        pure = [seconds for sampled, fed, seconds in clock.steps if sampled == fed == rows]
        mixed = [seconds for sampled, fed, seconds in clock.steps if fed > max(sampled, rows)]
        print(
            f"{name:10} {rows:5} rows: {1e3 * statistics.median(pure):6.2f} ms a step (median of {len(pure)}), "
            f"prompts {1e3 * sum(mixed):.1f} ms in {len(mixed)} steps",
            flush=True,
        )
        print(f"{'':10} all steps: {clock.report(len(clock.steps) / 1e3, 'ms a step')}", flush=True)
        if kernels:
            await show_kernels(all_of)


async def show_kernels(work: Callable[[int], Any]) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        await work(8)
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"{'':10} kernels of 8 steps: {total / 8e3:.2f} ms a step on the device")
    for event in events[:8]:
        print(f"{'':12}{event.self_device_time_total / 8e3:7.3f} ms {event.count / 8:6.1f} x {event.key[:90]}")


async def play(env: str, model: Any, tokenizer: Any, episodes: int) -> None:
    from palestra.agents import ChatAgent
    from palestra.core import Wrapper
    from palestra.engines import LocalEngine
    from palestra.rollout import collect

    class Anyway(Wrapper):
        """The model is untrained and would lose in the first turn: its replies are sampled, but not played."""

        def before_step(self, action: str) -> str:
            del action
            return self.env.sample_random_action()

    async with LocalEngine(model, tokenizer=tokenizer, device=str(model.device), slots=episodes) as engine:
        clock = Clock(engine)
        agent = ChatAgent(engine, max_tokens=16)
        for warm in (True, False):
            clock.reset()
            sampled = engine.stats.sampled
            began, busy = perf_counter(), thread_time()
            count = 32 if warm else episodes
            result = await collect(agent, env, episodes=count, concurrency=count, seed=0, wrappers=[Anyway])
            seconds, busy = perf_counter() - began, thread_time() - busy
        turns = sum(len(trajectory.turns) for trajectory in result.trajectories)
        sampled = engine.stats.sampled - sampled
        working = sum(each for phase, each in clock.seconds.items() if phase != "wait")
        print(
            f"{env}: {len(result.trajectories)} episodes, {turns} turns, {sampled} tokens in {seconds:.2f} s; "
            f"{len(clock.steps)} steps\n"
            f"{'':10} event loop {busy:.2f} s of CPU ({1e6 * busy / turns:.0f} us a turn); worker {working:.2f} s; "
            f"{clock.report()}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--tokens", type=int, default=48, help="of each reply (48)")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of each prompt (200)")
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--dtype", default=None, help="float32 for the small model, bfloat16 for the larger one")
    parser.add_argument("--small-only", action="store_true", help="without the model of SmolLM2's shape")
    parser.add_argument("--no-decode", action="store_true", help="episodes only")
    parser.add_argument("--as-on-a-gpu", action="store_true", help="on a CPU: the same paths as on a GPU")
    args = parser.parse_args()
    import torch

    from palestra.engines.default_model import default_model
    from palestra.engines.local import runner

    if args.as_on_a_gpu:
        runner.dear_calls = lambda device: device is not None
    on_gpu = args.device != "cpu"
    if on_gpu:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    small, tokenizer = default_model("1M")
    small.to(args.device, getattr(torch, args.dtype or "float32"))
    models = [("1M", small)]
    if not args.small_only:
        models.append(("SmolLM2", smol().to(args.device, getattr(torch, args.dtype or "bfloat16"))))
    for name, model in [] if args.no_decode else models:
        for rows in args.rows:
            kernels = on_gpu and rows == args.rows[len(args.rows) // 2]
            asyncio.run(decode(name, model, rows, args.tokens, args.prompt, kernels))
    for env in ENVS:
        asyncio.run(play(env, small, tokenizer, args.episodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())

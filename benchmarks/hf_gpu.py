"""Profile LocalEngine on a GPU: milliseconds per decoding step and seconds per collection of episodes, by phase.

Prints one line per model and batch size, then one per environment, each with the time spent in these phases:

  wait      the worker waits for requests while the event loop (agents, environments, tokenizers) runs
  admit     assign cache entries to requests and copy shared prefixes
  prepare   build the step's input
  model     call the model; on a GPU this only launches the kernels
  sample    sample and wait for the result: the remaining device time
  append    append tokens and detect stops
  deliver   resolve futures
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
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

ENVS = ("game:GuessTheNumber-v0-hard", "game:TowerofHanoi-v0-easy")


class Clock:
    """Times an engine's phases by wrapping its methods."""

    def __init__(self, engine: Any) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.steps: list[tuple[int, int, float]] = []  # sampled tokens, computed tokens, seconds
        scheduler = engine._scheduler
        for owner, method, phase in (
            (engine._admission, "wait", "wait"),
            (scheduler, "_admit", "admit"),
            (scheduler, "_grow_blocks", "admit"),
            (scheduler.kv_cache, "flush_copies", "admit"),
            (scheduler._batch, "next_step", "prepare"),
            (scheduler.runner, "forward", "model"),
            (scheduler, "_sample", "sample"),
            (scheduler, "_append", "append"),
            (engine, "_deliver", "deliver"),
        ):
            if owner is not None:
                self._wrap(owner, method, phase)
        step = scheduler.step

        def timed(version: int) -> Any:
            started, before = perf_counter(), replace(scheduler.stats)
            finished = step(version)
            sampled = scheduler.stats.sampled - before.sampled
            computed = scheduler.stats.computed - before.computed
            self.steps.append((sampled, computed, perf_counter() - started))
            return finished

        scheduler.step = timed

    def _wrap(self, owner: Any, method: str, phase: str) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any, **options: Any) -> Any:
            started = perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                self.seconds[phase] += perf_counter() - started
                self.calls[phase] += 1

        setattr(owner, method, timed)

    def reset(self) -> None:
        self.seconds.clear()
        self.calls.clear()
        self.steps.clear()

    def report(self, per: float = 1.0, unit: str = "s") -> str:
        return ", ".join(f"{phase} {seconds / per:.3g}" for phase, seconds in self.seconds.items()) + f" ({unit})"


def smol() -> Any:
    """Create a random model with the shape of SmolLM2-135M."""
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
    """Time replies of equal length that start at the same time, so that every step after the first only decodes."""
    from palestra.engines import LocalEngine, Sampling

    rng = random.Random(0)
    prompts = [[rng.randrange(1000) for _ in range(prompt)] for _ in range(rows)]
    async with LocalEngine(model, device=str(model.device), max_running=rows, eos_ids=()) as engine:
        clock = Clock(engine)

        async def all_of(count: int) -> None:
            await asyncio.gather(
                *(engine.generate(ids, Sampling(max_tokens=count, seed=at)) for at, ids in enumerate(prompts))
            )

        await all_of(4)
        clock.reset()
        await all_of(tokens)
        decoding = [seconds for sampled, computed, seconds in clock.steps if sampled == computed == rows]
        prefill = [seconds for sampled, computed, seconds in clock.steps if computed > max(sampled, rows)]
        print(
            f"{name:10} {rows:5} rows: {1e3 * statistics.median(decoding):6.2f} ms per step "
            f"(median of {len(decoding)}), prompts {1e3 * sum(prefill):.1f} ms in {len(prefill)} steps",
            flush=True,
        )
        print(f"{'':10} all steps: {clock.report(len(clock.steps) / 1e3, 'ms per step')}", flush=True)
        if kernels:
            await show_kernels(all_of)


async def show_kernels(work: Callable[[int], Any]) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        await work(8)
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"{'':10} kernels of 8 steps: {total / 8e3:.2f} ms per step on the device")
    for event in events[:8]:
        print(f"{'':12}{event.self_device_time_total / 8e3:7.3f} ms {event.count / 8:6.1f} x {event.key[:90]}")


async def run_episodes(env: str, model: Any, tokenizer: Any, episodes: int) -> None:
    from palestra.agents import ChatAgent
    from palestra.core import Wrapper
    from palestra.engines import LocalEngine
    from palestra.rollout import collect

    class RandomActions(Wrapper):
        """Replace the untrained model's replies, which would lose in the first turn, with random actions."""

        def before_step(self, action: str) -> str:
            del action
            return self.env.sample_random_action()

    async with LocalEngine(model, tokenizer=tokenizer, device=str(model.device), max_running=episodes) as engine:
        clock = Clock(engine)
        agent = ChatAgent(engine, max_tokens=16)
        for warm in (True, False):
            clock.reset()
            sampled = engine.stats.sampled
            started, busy = perf_counter(), thread_time()
            count = 32 if warm else episodes
            result = await collect(agent, env, episodes=count, concurrency=count, seed=0, wrappers=[RandomActions])
            seconds, busy = perf_counter() - started, thread_time() - busy
        turns = sum(len(trajectory.turns) for trajectory in result.trajectories)
        sampled = engine.stats.sampled - sampled
        working = sum(each for phase, each in clock.seconds.items() if phase != "wait")
        print(
            f"{env}: {len(result.trajectories)} episodes, {turns} turns, {sampled} tokens in {seconds:.2f} s; "
            f"{len(clock.steps)} steps\n"
            f"{'':10} event loop {busy:.2f} s of CPU ({1e6 * busy / turns:.0f} us per turn); worker {working:.2f} s; "
            f"{clock.report()}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--tokens", type=int, default=48, help="Number of tokens per reply (default: 48).")
    parser.add_argument("--prompt", type=int, default=200, help="Number of tokens per prompt (default: 200).")
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument(
        "--dtype", default=None, help="Data type (default: float32 for the small model, bfloat16 for the large one)."
    )
    parser.add_argument("--small-only", action="store_true", help="Skip the model with the shape of SmolLM2.")
    parser.add_argument("--no-decode", action="store_true", help="Measure only episodes.")
    parser.add_argument("--gpu-paths", action="store_true", help="Use the GPU code paths on a CPU.")
    args = parser.parse_args()
    import torch

    from palestra.engines.default_model import default_model
    from palestra.engines.local import runner

    if args.gpu_paths:
        runner.launch_bound = lambda device: device is not None
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
        asyncio.run(run_episodes(env, small, tokenizer, args.episodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())

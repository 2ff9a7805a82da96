"""Measure the CPU time of rollouts outside the model per turn and per sampled token, compared with a bare loop.

    python benchmarks/host_time.py [--episodes 256] [--rounds 5] [--workers 0] [--json]

On a GPU with a small model, rollouts are limited by Python. Here the device is replaced with a runner that replies
immediately, so that only the host's work is measured: environments, agents, tokenizer, event loop and scheduler. The
bare loop plays the same games with the same runner: it calls `env.step`, encodes each observation with the chat
template's markup, appends ids to a list and decodes each reply, for all episodes at once and without trajectories. Both
sides take turns in one process. The time per token is the difference between long and short replies.

With `--workers N`, N processes play the episodes (`RolloutWorkers`), and the CPU time of the engine's process is also
reported: it runs only the scheduler and passes messages.

The exit code is 1 if Palestra takes more than LIMITS times the CPU time of the bare loop.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np

import palestra
from palestra.agents import ChatAgent
from palestra.engines import LocalEngine
from palestra.engines.default_model import default_model
from palestra.engines.local.paged.layout import SAMPLED, SEED_LOW
from palestra.engines.local.paged.runner import Flight, StepInput
from palestra.engines.local.paged.scheduler import PagedScheduler
from palestra.rollout import RolloutWorkers, collect
from palestra.rollout.heap import frozen_heap
from palestra.seeding import child_seed

GAME = "game:GuessTheNumber-v0-hard"
KWARGS: dict[str, Any] = {"partial_credit": True, "success_reward": 2.0}
LIMITS = {"turn": 2.0, "token": 8.0}  # Palestra's CPU time / the bare loop's
SHORT, LONG = 4, 68  # tokens per reply
HEADER, FOOTER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


class NoMemory:
    """The KV memory of a runner that stores nothing."""

    pages = mapped_pages = 500_000

    def grow(self, pages: int) -> bool:
        return pages <= self.pages

    def release(self) -> None: ...
    def close(self) -> None: ...


class InstantRunner:
    """Replies to every request with some filler, a random guess and the stop token, without a model."""

    name = "instant"
    max_pages = 512
    small = True

    def __init__(self, tokenizer: Any, slots: int, reply_tokens: int) -> None:
        def encode(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        self.memory = NoMemory()
        guess = [*encode("\\boxed{"), -1, *encode("}"), tokenizer.eos_token_id]
        self._reply = np.array(encode("a") * (reply_tokens - len(guess)) + guess, np.int32)
        self._numbers = np.array([encode(str(number))[0] for number in range(1, 51)], np.int32)
        self._count = np.zeros(slots, np.int64)  # tokens sampled so far
        self._seed = np.zeros(slots, np.int64)

    def reload_weights(self) -> bool:
        return True

    def start(self, slots: Any, seeds: Any, counts: Any) -> None:
        self._count[slots], self._seed[slots] = counts, seeds

    def sample(self, slots: Any) -> Any:
        count = self._count[slots]
        tokens = self._reply[np.minimum(count, len(self._reply) - 1)]
        guesses = tokens < 0
        tokens[guesses] = self._numbers[(self._seed[slots[guesses]] * 7919 + count[guesses]) % len(self._numbers)]
        self._count[slots] = count + 1
        return tokens

    def launch(self, step: StepInput) -> Flight:
        rows = step.state_rows
        self.start(rows[:, 0], rows[:, 1 + SEED_LOW] & 0xFFFF, rows[:, 1 + SAMPLED])
        prefilled = step.chunks.slots[step.chunks.samples].astype(np.int64)
        tokens = np.concatenate((self.sample(prefilled), self.sample(step.decode_slots)))
        return Flight([np.stack((tokens, np.full(len(tokens), -0.5, np.float32).view(np.int32)))], None)


class Ours:
    """Plays with `collect`, a chat agent and a LocalEngine."""

    def __init__(self, model: Any, tokenizer: Any, episodes: int, reply_tokens: int, *, lockstep: bool = True) -> None:
        self._engine = LocalEngine(model, tokenizer=tokenizer, max_running=episodes, lockstep=lockstep)
        runner: Any = InstantRunner(tokenizer, episodes, reply_tokens)
        self._engine._scheduler = PagedScheduler(runner, max_running=episodes, prefill_budget=65_536)
        self._agent = ChatAgent(self._engine, max_tokens=reply_tokens)
        self._episodes = episodes
        self._pool: RolloutWorkers | None = None

    async def start_workers(self, count: int) -> RolloutWorkers:
        self._pool = await RolloutWorkers(self._engine, workers=count).__aenter__()
        return self._pool

    async def play(self, seed: int) -> int:
        """Play the episodes and return the number of turns."""
        count = self._episodes
        result = await collect(
            self._agent,
            GAME,
            episodes=count,
            concurrency=count,
            seed=seed,
            kwargs=KWARGS,
            rollout_workers=self._pool or 0,
        )
        if result.failures:
            raise RuntimeError(f"{len(result.failures)} episodes failed: {result.failures[0].failure}")
        return sum(len(trajectory.turns) for trajectory in result.trajectories)


class Bare:
    """Plays all episodes in a plain loop, one turn at a time."""

    def __init__(self, tokenizer: Any, episodes: int, reply_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._runner = InstantRunner(tokenizer, episodes, reply_tokens)
        self._episodes = episodes

    async def play(self, seed: int) -> int:
        envs = [palestra.make(GAME, **KWARGS) for _ in range(self._episodes)]
        texts = [str(env.reset(seed=child_seed(seed, "task", at))[0]) for at, env in enumerate(envs)]
        ids: list[list[int]] = [[] for _ in envs]
        running, turns = list(range(len(envs))), 0
        while running:
            slots = np.array(running)
            for at in running:
                ids[at] += self._tokenizer.encode(HEADER + texts[at] + FOOTER, add_special_tokens=False)
            self._runner.start(slots, slots, 0)
            columns = [self._runner.sample(slots)]
            while columns[-1][0] != self._tokenizer.eos_token_id:
                columns.append(self._runner.sample(slots))
            still = []
            for at, reply in zip(running, np.stack(columns, 1).tolist(), strict=True):
                ids[at] += reply
                step = envs[at].step(self._tokenizer.decode(reply[:-1]))
                texts[at] = str(step.observation)
                turns += 1
                if not step.done:
                    still.append(at)
            running = still
        return turns


async def measure(episodes: int, rounds: int, workers: int) -> dict[str, Any]:
    model, tokenizer = default_model("0.1M")
    sides: dict[tuple[str, int], Any] = {}
    pools = []
    for tokens in (SHORT, LONG):
        sides["ours", tokens] = Ours(model, tokenizer, episodes, tokens)
        sides["bare", tokens] = Bare(tokenizer, episodes, tokens)
        if workers:
            side = sides["engine's process", tokens] = Ours(model, tokenizer, episodes, tokens, lockstep=False)
            pools.append(await side.start_workers(workers))
    for side in sides.values():
        await side.play(0)  # warm up
    times: dict[tuple[str, int], list[float]] = {key: [] for key in sides}
    for seed in range(1, rounds + 1):
        for key, side in sides.items():
            gc.collect()
            started = process_time()
            turns = await side.play(seed)
            times[key].append((process_time() - started) / turns * 1e6)
    for pool in pools:
        await pool.aclose()
    report: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _ in sides):
        per_turn = median(times[name, SHORT])
        longer = median(long - short for long, short in zip(times[name, LONG], times[name, SHORT], strict=True))
        report[name] = {"turn": per_turn, "token": longer / (LONG - SHORT)}
    report["ratios"] = {unit: report["ours"][unit] / max(report["bare"][unit], 1e-9) for unit in LIMITS}
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--episodes", type=int, default=256, help="Concurrent episodes (default: 256).")
    parser.add_argument("--rounds", type=int, default=5, help="Measurements per side (default: 5).")
    parser.add_argument(
        "--workers", type=int, default=0, help="Also measure with this many rollout workers (default: 0)."
    )
    parser.add_argument("--json", action="store_true", help="Print all measurements as JSON.")
    args = parser.parse_args()
    with frozen_heap():  # as in training
        report = asyncio.run(measure(args.episodes, args.rounds, args.workers))
    missed = [unit for unit, limit in LIMITS.items() if report["ratios"][unit] > limit]
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        for unit, limit in LIMITS.items():
            ours, bare, ratio = report["ours"][unit], report["bare"][unit], report["ratios"][unit]
            print(f"CPU time per {unit}: {ours:.1f} us, bare loop {bare:.1f} us, ratio {ratio:.2f}, limit {limit:g}")
        for unit, value in report.get("engine's process", {}).items():
            print(f"CPU time of the engine's process with {args.workers} workers per {unit}: {value:.1f} us")
        print(f"MISSED  {', '.join(missed)}" if missed else "all limits are kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

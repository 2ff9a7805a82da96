"""ScienceWorld here against the bare package, in one run: the wait for a first observation, steps a second, memory.

Both sides play the same episodes of ten turns with the same random player, and take turns, so that a busy machine slows
both. `--think` is what a player needs for a turn; a model needs a second, and 0 is the hardest case. With `--collect`
the episodes are those of a rollout, one after the other, whose seeds nothing but the rollout knows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import palestra
from palestra.agents import RandomAgent
from palestra.core import Env, Reset, Wrapper
from palestra.envs.sciworld.pool import pool
from palestra.rollout import collect
from palestra.types import Step

TURNS = 10
Spent = dict[str, list[float]]  # seconds by what they were spent on, and megabytes


def megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


class Bare:
    """The package as its own examples use it."""

    def __init__(self) -> None:
        from scienceworld import ScienceWorldEnv

        with contextlib.chdir(tempfile.gettempdir()):  # its Java process writes a file where it is started
            self.env = ScienceWorldEnv("", envStepLimit=1000)

    def reset(self, task: str, variation: int) -> None:
        self.env.load(task, variation, "", generateGoldPath=False)
        self.env.reset()

    def step(self, action: str) -> None:
        self.env.step(action)


class Timed(Wrapper):
    """Notes what resets and steps take, and how much memory there is when an episode is over."""

    def __init__(self, env: Env, spent: Spent, think: float) -> None:
        super().__init__(env)
        self.spent = spent
        self.think = think

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        clock = time.perf_counter()
        result = self.env.reset(seed, options)
        self.spent["wait"].append(time.perf_counter() - clock)
        return result

    def step(self, action: str) -> Step:
        time.sleep(self.think)
        clock = time.perf_counter()
        step = self.env.step(action)
        self.spent["step"].append(time.perf_counter() - clock)
        if step.done:
            self.spent["megabytes"].append(
                sum(megabytes(engine.pid) for engine in pool.engines) + megabytes(os.getpid())
            )
        return step


def by_rollout(env_id: str, episodes: int, think: float, spent: Spent) -> None:
    result = asyncio.run(
        collect(
            RandomAgent(),
            env_id,
            episodes=episodes,
            concurrency=1,
            seed=0,
            kwargs={"max_turns": TURNS},
            wrappers=[lambda env: Timed(env, spent, think)],
        )
    )
    if result.failures:
        raise SystemExit(f"{len(result.failures)} episodes failed; the first: {result.failures[0].failure}")


def by_resets(env_id: str, episodes: int, think: float, spent: Spent, bare: Bare | None) -> None:
    with Timed(palestra.make(env_id, max_turns=TURNS), spent, think) as env:
        for episode in range(episodes):
            _, info = env.reset(0 if episode == 0 else None)
            actions: list[str] = []
            done = False
            while not done:
                actions.append(env.sample_random_action())
                done = env.step(actions[-1]).done
            if bare is not None:
                clock = time.perf_counter()
                bare.reset(info["task"], info["variation"])
                spent["bare wait"].append(time.perf_counter() - clock)
                for action in actions:
                    clock = time.perf_counter()
                    bare.step(action)
                    spent["bare step"].append(time.perf_counter() - clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--think", type=float, default=0.0, help="seconds a turn")
    parser.add_argument("--id", default="sciworld:All-v0")
    parser.add_argument("--alone", action="store_true", help="leave out the bare package")
    parser.add_argument("--collect", action="store_true", help="through a rollout, alone")
    args = parser.parse_args()

    spent: Spent = {name: [] for name in ("wait", "step", "bare wait", "bare step", "megabytes")}
    bare = None if args.alone or args.collect else Bare()
    if args.collect:
        by_rollout(args.id, args.episodes, args.think, spent)
    else:
        by_resets(args.id, args.episodes, args.think, spent, bare)
    peak = max(spent.pop("megabytes"))
    warm = {name: sorted(values[1:]) for name, values in spent.items() if values}  # the first starts the process
    for name, values in warm.items():
        print(f"{name:10} median {median(values) * 1e3:8.1f} ms   90% {values[int(0.9 * len(values))] * 1e3:8.1f} ms")
    if bare is not None:
        print(f"steps: {median(warm['bare step']) / median(warm['step']):.1f}x the bare package's rate")
        bare.env.close()
    pids = [engine.pid for engine in pool.engines]
    pool.close()
    left = sum(Path(f"/proc/{pid}").exists() for pid in pids)
    print(
        f"{args.episodes} episodes, {pool.started} Java process(es), {left} left after close, "
        f"at most {peak:.0f} MB with this one"
    )


if __name__ == "__main__":
    main()

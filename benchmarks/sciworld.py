"""Compare SciWorld with the bare scienceworld package: time to the first observation, time per step, memory.

Both sides alternately play the same episodes of ten turns with the same random actions, so that other load on the
machine affects both. `--think` is the time that a player needs per turn; a model needs about a second, and 0 is the
hardest case. `--collect` plays the episodes sequentially through a rollout, which announces the upcoming seeds.
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
Measurements = dict[str, list[float]]  # seconds per kind of call, and megabytes of memory


def megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


class Bare:
    """The scienceworld package, used as in its own examples."""

    def __init__(self) -> None:
        from scienceworld import ScienceWorldEnv

        with contextlib.chdir(tempfile.gettempdir()):  # the Java process writes a file to its working directory
            self.env = ScienceWorldEnv("", envStepLimit=1000)

    def reset(self, task: str, variation: int) -> None:
        self.env.load(task, variation, "", generateGoldPath=False)
        self.env.reset()

    def step(self, action: str) -> None:
        self.env.step(action)


class Timed(Wrapper):
    """Record the duration of resets and steps, and the memory in use at the end of each episode."""

    def __init__(self, env: Env, measured: Measurements, think: float) -> None:
        super().__init__(env)
        self.measured = measured
        self.think = think

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        clock = time.perf_counter()
        result = self.env.reset(seed, options)
        self.measured["wait"].append(time.perf_counter() - clock)
        return result

    def step(self, action: str) -> Step:
        time.sleep(self.think)
        clock = time.perf_counter()
        step = self.env.step(action)
        self.measured["step"].append(time.perf_counter() - clock)
        if step.done:
            self.measured["megabytes"].append(
                sum(megabytes(java.pid) for java in pool.simulators + pool.solvers) + megabytes(os.getpid())
            )
        return step


def play_rollout(env_id: str, episodes: int, think: float, measured: Measurements) -> None:
    result = asyncio.run(
        collect(
            RandomAgent(),
            env_id,
            episodes=episodes,
            concurrency=1,
            seed=0,
            kwargs={"max_turns": TURNS},
            wrappers=[lambda env: Timed(env, measured, think)],
        )
    )
    if result.failures:
        raise SystemExit(f"{len(result.failures)} episodes failed; the first: {result.failures[0].failure}")


def play_resets(env_id: str, episodes: int, think: float, measured: Measurements, bare: Bare | None) -> None:
    with Timed(palestra.make(env_id, max_turns=TURNS), measured, think) as env:
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
                measured["bare wait"].append(time.perf_counter() - clock)
                for action in actions:
                    clock = time.perf_counter()
                    bare.step(action)
                    measured["bare step"].append(time.perf_counter() - clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=30, help="Number of episodes per side.")
    parser.add_argument("--think", type=float, default=0.0, help="Seconds to wait before each turn.")
    parser.add_argument("--id", default="sciworld:All-v0", help="Environment id.")
    parser.add_argument("--alone", action="store_true", help="Do not measure the bare package.")
    parser.add_argument("--collect", action="store_true", help="Play through a rollout, without the bare package.")
    args = parser.parse_args()

    measured: Measurements = {name: [] for name in ("wait", "step", "bare wait", "bare step", "megabytes")}
    bare = None if args.alone or args.collect else Bare()
    if args.collect:
        play_rollout(args.id, args.episodes, args.think, measured)
    else:
        play_resets(args.id, args.episodes, args.think, measured, bare)
    peak = max(measured.pop("megabytes"))
    # The first value includes process startup.
    warm = {name: sorted(values[1:]) for name, values in measured.items() if values}
    for name, values in warm.items():
        print(f"{name:10} median {median(values) * 1e3:8.1f} ms   90% {values[int(0.9 * len(values))] * 1e3:8.1f} ms")
    if bare is not None:
        print(f"steps: {median(warm['bare step']) / median(warm['step']):.1f}x as fast as the bare package")
        bare.env.close()
    pids = [java.pid for java in pool.simulators + pool.solvers]
    pool.close()
    left = sum(Path(f"/proc/{pid}").exists() for pid in pids)
    print(
        f"{args.episodes} episodes, {pool.started} Java process(es), {left} left after close, "
        f"at most {peak:.0f} MB with this one"
    )


if __name__ == "__main__":
    main()

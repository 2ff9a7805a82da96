"""ScienceWorld here against the bare package, in one run: the wait for a first observation, steps a second, memory.

Both sides play the same episodes of ten turns with the same random player, and take turns, so that a busy machine slows
both. `--think` is what a player needs for a turn; a model needs a second, and 0 is the hardest case.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median

import palestra
from palestra.envs.sciworld.env import SciWorld
from palestra.envs.sciworld.pool import pool

TURNS = 10


def megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


class Bare:
    """The package as its own examples use it."""

    def __init__(self) -> None:
        from scienceworld import ScienceWorldEnv

        self.env = ScienceWorldEnv("", envStepLimit=1000)

    def reset(self, task: str, variation: int) -> None:
        self.env.load(task, variation, "", generateGoldPath=False)
        self.env.reset()

    def step(self, action: str) -> None:
        self.env.step(action)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--think", type=float, default=0.0, help="seconds a turn")
    parser.add_argument("--id", default="sciworld:All-v0")
    parser.add_argument("--alone", action="store_true", help="leave out the bare package")
    args = parser.parse_args()

    env = palestra.make(args.id, max_turns=TURNS)
    assert isinstance(env, SciWorld)
    bare = None if args.alone else Bare()
    spent: dict[str, list[float]] = {"wait": [], "step": [], "bare wait": [], "bare step": []}
    peak = 0.0

    def timed(name: str, call: object, *given: object) -> object:
        clock = time.perf_counter()
        result = call(*given)  # type: ignore[operator]
        spent[name].append(time.perf_counter() - clock)
        return result

    for episode in range(args.episodes):
        _, info = timed("wait", env.reset, 0 if episode == 0 else None)  # type: ignore[misc]
        actions: list[str] = []
        for _ in range(TURNS):
            time.sleep(args.think)
            actions.append(env.sample_random_action())
            if timed("step", env.step, actions[-1]).done:  # type: ignore[attr-defined]
                break
        peak = max(peak, sum(megabytes(engine.pid) for engine in pool.engines) + megabytes(os.getpid()))
        if bare is not None:
            timed("bare wait", bare.reset, info["task"], info["variation"])
            for action in actions:
                timed("bare step", bare.step, action)

    warm = {name: sorted(values[1:]) for name, values in spent.items() if values}  # the first starts the process
    for name, values in warm.items():
        print(f"{name:10} median {median(values) * 1e3:8.1f} ms   90% {values[int(0.9 * len(values))] * 1e3:8.1f} ms")
    if bare is not None:
        print(f"steps: {median(warm['bare step']) / median(warm['step']):.1f}x the bare package's rate")
    print(f"{args.episodes} episodes, {pool.started} Java process(es), at most {peak:.0f} MB with this one")
    if bare is not None:
        bare.env.close()


if __name__ == "__main__":
    main()

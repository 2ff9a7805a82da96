"""Child process that runs one side of env_step.py. It reads JSON commands, one per line, and returns measurements.

The interpreter must have either Palestra (`env_step_side.py ours`) or GEM (`env_step_side.py gem`) installed.
"""

from __future__ import annotations

import copy
import itertools
import logging
import sys
from statistics import mean, median
from time import perf_counter_ns as clock
from time import thread_time_ns as cpu_clock
from typing import Any

from sides import serve_commands

SLOW_RESET = 50_000_000  # nanoseconds; envs whose reset takes longer are reset only POOL times and then copied
POOL = 2
FORMAT_ERROR = -0.1  # reward on both sides for an action that cannot be parsed


class Side:
    def __init__(self, name: str) -> None:
        if name == "ours":
            import palestra

            self.make = palestra.make
        else:
            import gem
            import gem.envs
            import nltk

            nltk.download = lambda *_, **__: True  # prevents GEM's constructors from downloading a corpus
            logging.disable(logging.CRITICAL)
            self.make = gem.make

    def load(self, env_id: str, episodes: list[tuple[int, list[str]]]) -> dict[str, Any]:
        """Create the env and store the episodes to play on it."""
        self.env_id = env_id
        self.env = self.make(env_id)
        self.seeds = itertools.count()
        self.episodes = itertools.cycle(episodes)
        start = clock()
        self.env.reset(seed=0)
        slow = clock() - start > SLOW_RESET
        self.pool: list[Any] = []
        for seed in range(POOL if slow else 0):
            self.env.reset(seed=seed)
            self.pool.append(copy.deepcopy(self.env))
        return {"slow": slow}

    def _start_episode(self, seed: int) -> Any:
        if self.pool:
            return copy.deepcopy(self.pool[seed % POOL])
        self.env.reset(seed=seed)
        return self.env

    def step(self, ns: int) -> dict[str, Any]:
        """Run steps for `ns` nanoseconds, excluding the time for resets, and return their statistics."""
        times: list[int] = []
        spent = unread = 0
        deadline = clock() + 5 * ns  # also limits the total time, because resets may take longer than the steps
        while spent < ns and (clock() < deadline or len(times) < 50):
            seed, actions = next(self.episodes)
            env = self._start_episode(seed)
            step = env.step
            for action in actions:
                start = clock()
                result = step(action)
                duration = clock() - start
                times.append(duration)
                spent += duration
                if result[2] or result[3]:
                    unread += result[1] == FORMAT_ERROR
                    break
        overhead = min(_clock_overheads(500))
        return {
            "median": median(times) - overhead,
            "mean": mean(times) - overhead,
            "steps": len(times),
            "unread": unread / len(times),
        }

    def reset(self, ns: int, most: int) -> list[int]:
        return _timed(lambda: self.env.reset(seed=next(self.seeds)), ns, most)

    def construct(self, ns: int, most: int) -> list[int]:
        return _timed(lambda: self.make(self.env_id), ns, most)

    # The methods below are called only on Palestra's side.

    def episodes_of(self, env_id: str, seeds: int) -> list[tuple[int, list[str]]]:
        """Return (seed, actions) for random episodes, with the expert's actions on every fourth seed."""
        env = self.make(env_id)
        episodes = []
        for seed in range(seeds):
            env.reset(seed=seed)
            actions: list[str] = []
            done = False
            while not done:
                actions.append(env.expert_action() if seed % 4 == 0 else env.sample_random_action())
                done = env.step(actions[-1]).done
            episodes.append((seed, actions))
        return episodes

    def fork(self, ns: int, most: int) -> list[int]:
        """Time forks in the middle of an episode."""
        _, actions = max(itertools.islice(self.episodes, 8), key=lambda episode: len(episode[1]))
        self.env.reset(seed=0)
        for action in actions[: len(actions) // 2]:
            if self.env.step(action).done:
                self.env.reset(seed=0)
        return _timed(self.env.fork, ns, most)

    def hostile(self, repeats: int) -> dict[str, Any]:
        """Return the slowest step's time on adversarial strings, using the best of `repeats` runs per string."""
        from palestra.conformance.hostile_actions import HOSTILE_ACTIONS

        worst: dict[str, Any] = {"ns": 0, "action": ""}
        for name, action in [*HOSTILE_ACTIONS, *_large_actions()]:
            times: list[int] = []
            while len(times) < 1 or (len(times) < repeats and min(times) > worst["ns"]):
                self.env.reset(seed=0)
                start = cpu_clock()
                self.env.step(action)
                times.append(cpu_clock() - start)
            if min(times) > worst["ns"]:
                worst = {"ns": min(times), "action": name}
        return worst


def _clock_overheads(count: int) -> list[int]:
    """Return the nanoseconds between pairs of consecutive clock readings."""
    times = []
    for _ in range(count):
        start = clock()
        times.append(clock() - start)
    return times


def _timed(work: Any, ns: int, most: int) -> list[int]:
    """Call `work` until `ns` nanoseconds or `most` calls are reached, and return the CPU nanoseconds of each call.

    CPU time is not affected by other processes. Steps are measured with the wall clock, because reading the CPU clock
    takes a considerable fraction of a step's time.
    """
    times: list[int] = []
    while len(times) < most and (sum(times) < ns or not times):
        start = cpu_clock()
        work()
        times.append(cpu_clock() - start)
    return times


def _large_actions() -> list[tuple[str, str]]:
    """Return (name, action) pairs whose actions have 1 MB or fill a box of the maximum length."""
    megabyte = 1 << 20
    return [
        ("1 MB of letters", "a" * megabyte),
        ("1 MB of opening braces in a box", "\\boxed{" + "{" * megabyte),
        ("1 MB of nested braces", "\\boxed{" + "{" * (megabyte // 2) + "}" * (megabyte // 2)),
        ("1 MB of unclosed boxes", "\\boxed{" * (megabyte // 7)),
        ("1 MB of empty boxes", "\\boxed{}" * (megabyte // 8)),
        ("1 MB of nested boxes", "\\boxed{" * (megabyte // 8) + "}" * (megabyte // 8)),
        ("1 MB of numbers in a box", "\\boxed{" + "1 " * (megabyte // 2) + "}"),
        ("1 MB of emoji", "\U0001f600" * (megabyte // 4)),
        ("1 MB of text, then a number of 10,000 digits", "so " * (megabyte // 3) + "\\boxed{" + "9" * 10_000 + "}"),
        ("255 digits in a box", "\\boxed{" + "9" * 255 + "}"),
        ("128 numbers in a box", "\\boxed{" + "9 " * 127 + "}"),
        ("255 spaces in a box", "\\boxed{" + " " * 255 + "}"),
        ("commas and brackets in a box", "\\boxed{" + "[(,)]" * 51 + "}"),
        ("full-width digits in a box", "\\boxed{" + "\uff11" * 255 + "}"),
    ]


def main() -> None:
    serve_commands(lambda: Side(sys.argv[1]))


if __name__ == "__main__":
    main()

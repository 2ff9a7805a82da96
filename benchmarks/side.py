"""One side of env_step.py, in a process of its own: reads a JSON command a line, times its own work, answers a line.

Run by either interpreter, with Palestra (`python side.py ours`) or with GEM (`python side.py gem`) installed.
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

from sides import answer_all

SLOW_RESET = 50_000_000  # ns; envs slower than this are reset a few times and then copied
POOL = 2  # how many times
FORMAT_ERROR = -0.1  # what both sides pay for an action they cannot read


class Side:
    def __init__(self, name: str) -> None:
        if name == "ours":
            import palestra

            self.make = palestra.make
        else:
            import gem
            import gem.envs
            import nltk

            nltk.download = lambda *_, **__: True  # its constructors would ask the network for a corpus
            logging.disable(logging.CRITICAL)
            self.make = gem.make

    def load(self, env_id: str, episodes: list[tuple[int, list[str]]]) -> dict[str, Any]:
        """Make the env and keep what will be played on it."""
        self.env_id = env_id
        self.env = self.make(env_id)
        self.seeds = itertools.count()
        self.episodes = itertools.cycle(episodes)
        began = clock()
        self.env.reset(seed=0)
        slow = clock() - began > SLOW_RESET
        self.pool: list[Any] = []
        for seed in range(POOL if slow else 0):
            self.env.reset(seed=seed)
            self.pool.append(copy.deepcopy(self.env))
        return {"slow": slow}

    def _begin(self, seed: int) -> Any:
        if self.pool:
            return copy.deepcopy(self.pool[seed % POOL])
        self.env.reset(seed=seed)
        return self.env

    def step(self, ns: int) -> dict[str, Any]:
        """Steps worth `ns`; resets are not in it."""
        times: list[int] = []
        spent = unread = 0
        wall = clock() + 5 * ns  # where resets cost more than steps
        while spent < ns and (clock() < wall or len(times) < 50):
            seed, actions = next(self.episodes)
            env = self._begin(seed)
            act = env.step
            for action in actions:
                began = clock()
                result = act(action)
                took = clock() - began
                times.append(took)
                spent += took
                if result[2] or result[3]:
                    unread += result[1] == FORMAT_ERROR
                    break
        idle = min(_readings(500))  # the clock's own share
        return {
            "median": median(times) - idle,
            "mean": mean(times) - idle,
            "steps": len(times),
            "unread": unread / len(times),
        }

    def reset(self, ns: int, most: int) -> list[int]:
        return _timed(lambda: self.env.reset(seed=next(self.seeds)), ns, most)

    def construct(self, ns: int, most: int) -> list[int]:
        return _timed(lambda: self.make(self.env_id), ns, most)

    # Ours only.

    def episodes_of(self, env_id: str, seeds: int) -> list[tuple[int, list[str]]]:
        """What the random player does, and the expert on every fourth seed."""
        env = self.make(env_id)
        played = []
        for seed in range(seeds):
            env.reset(seed=seed)
            actions: list[str] = []
            done = False
            while not done:
                actions.append(env.expert_action() if seed % 4 == 0 else env.sample_random_action())
                done = env.step(actions[-1]).done
            played.append((seed, actions))
        return played

    def fork(self, ns: int, most: int) -> list[int]:
        """Forks in the middle of an episode."""
        _, actions = max(itertools.islice(self.episodes, 8), key=lambda episode: len(episode[1]))
        self.env.reset(seed=0)
        for action in actions[: len(actions) // 2]:
            if self.env.step(action).done:
                self.env.reset(seed=0)
        return _timed(self.env.fork, ns, most)

    def hostile(self, repeats: int) -> dict[str, Any]:
        """The slowest step on strings made to be slow: the best of `repeats` for each."""
        from palestra.conformance.hostile_actions import HOSTILE_ACTIONS

        worst: dict[str, Any] = {"ns": 0, "action": ""}
        for name, action in [*HOSTILE_ACTIONS, *_heavy()]:
            took = []
            while len(took) < 1 or (len(took) < repeats and min(took) > worst["ns"]):
                self.env.reset(seed=0)
                began = cpu_clock()
                self.env.step(action)
                took.append(cpu_clock() - began)
            if min(took) > worst["ns"]:
                worst = {"ns": min(took), "action": name}
        return worst


def _readings(count: int) -> list[int]:
    """How long nothing takes."""
    times = []
    for _ in range(count):
        began = clock()
        times.append(clock() - began)
    return times


def _timed(work: Any, ns: int, most: int) -> list[int]:
    """The ns of CPU time of single calls: `most` of them, or as many as fit into `ns`.

    CPU time, so that the slowest calls are not those in which another process had its turn. Steps are timed by the
    cheaper clock, as a reading of this one takes a good part of a step.
    """
    times: list[int] = []
    while len(times) < most and (sum(times) < ns or not times):
        began = cpu_clock()
        work()
        times.append(cpu_clock() - began)
    return times


def _heavy() -> list[tuple[str, str]]:
    """A megabyte each, or as much as a box may hold."""
    megabyte = 1 << 20
    return [
        ("1 MB of letters", "a" * megabyte),
        ("1 MB of opened braces in a box", "\\boxed{" + "{" * megabyte),
        ("1 MB of nested braces", "\\boxed{" + "{" * (megabyte // 2) + "}" * (megabyte // 2)),
        ("1 MB of unclosed boxes", "\\boxed{" * (megabyte // 7)),
        ("1 MB of empty boxes", "\\boxed{}" * (megabyte // 8)),
        ("1 MB of nested boxes", "\\boxed{" * (megabyte // 8) + "}" * (megabyte // 8)),
        ("1 MB of numbers in a box", "\\boxed{" + "1 " * (megabyte // 2) + "}"),
        ("1 MB of emoji", "\U0001f600" * (megabyte // 4)),
        ("1 MB of thought, then a number of 10,000 digits", "so " * (megabyte // 3) + "\\boxed{" + "9" * 10_000 + "}"),
        ("255 digits in a box", "\\boxed{" + "9" * 255 + "}"),
        ("128 numbers in a box", "\\boxed{" + "9 " * 127 + "}"),
        ("255 blanks in a box", "\\boxed{" + " " * 255 + "}"),
        ("commas and brackets in a box", "\\boxed{" + "[(,)]" * 51 + "}"),
        ("full-width digits in a box", "\\boxed{" + "\uff11" * 255 + "}"),
    ]


def main() -> None:
    answer_all(lambda: Side(sys.argv[1]))


if __name__ == "__main__":
    main()

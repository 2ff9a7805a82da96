"""GEM's functions for playing an episode and printing it, for single environments and vector environments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pprint import pprint
from time import perf_counter
from typing import Any

Policy = Callable[[Any], Any]


def ppprint(value: Any) -> None:
    """Print a value; the items of a list or tuple are numbered."""
    if not isinstance(value, list | tuple):
        pprint(value)
        return
    for number, item in enumerate(value, 1):
        print(f"----- {number}/{len(value)}:")
        pprint(item)
        print()


def run_and_print_episode(env: Any, policy: Policy, ignore_done: bool = False, max_steps: float = 1e9) -> None:
    """Play and print an episode; a vector environment is played until all its episodes end in the same step."""
    with _timer():
        observation, _ = env.reset()
        for number in _numbers(max_steps):
            action = policy(observation)
            after, reward, terminated, truncated, _ = env.step(action)
            _print_step(number, {"observation": observation, "action": action, "reward": reward})
            observation = after
            if _done(terminated, truncated) and not ignore_done:
                break


def run_and_print_episode_with_selective_step(
    env: Any, policy: Policy, ignore_done: bool = False, max_steps: float = 1e9
) -> None:
    """Play and print a vector environment; each step includes each of its environments with probability 1/2."""
    with _timer():
        observation, _ = env.reset()
        for number in _numbers(max_steps):
            actions = dict(enumerate(policy(observation)))
            chosen = {index: action for index, action in actions.items() if random.random() < 0.5}
            if not chosen:
                index = random.choice(list(actions))
                chosen = {index: actions[index]}
            observation, reward, terminated, truncated, _ = env.step(chosen)
            _print_step(number, {"action": chosen, "next_observation": observation, "reward": reward})
            if _done(terminated, truncated) and not ignore_done:
                break


run_and_print_episode_with_random_selection = run_and_print_episode_with_selective_step


async def run_and_print_episode_async(
    env: Any, policy: Policy, ignore_done: bool = False, max_steps: float = 1e9
) -> None:
    """Like `run_and_print_episode`, for an environment whose `reset` and `step` are coroutines."""
    with _timer():
        observation, _ = await env.reset()
        for number in _numbers(max_steps):
            action = policy(observation)
            after, reward, terminated, truncated, _ = await env.step(action)
            _print_step(number, {"observation": observation, "action": action, "reward": reward})
            observation = after
            if _done(terminated, truncated) and not ignore_done:
                break


def _numbers(limit: float) -> Iterator[int]:
    return iter(range(1, int(limit) + 1))


def _done(terminated: Any, truncated: Any) -> bool:
    done = terminated | truncated
    return bool(done.all()) if hasattr(done, "all") else all(done) if isinstance(done, list) else bool(done)


def _print_step(number: int, parts: dict[str, Any]) -> None:
    print(f"{'=' * 30}\nStep {number}")
    for name, value in parts.items():
        print(f"---------- {name} ----------")
        ppprint(value)


class _timer:  # noqa: N801
    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        print(f"----TIME: {perf_counter() - self._start:.2f} seconds")

"""SubEnv: one env of a vector as an Env of its own, for code that plays one env at a time."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any

from palestra.core import Env, Reset
from palestra.types import Step
from palestra.vector.async_bridge import AsyncBridge
from palestra.workers.types import CALL, Command, EnvResult


class SubEnv(Env):
    """Made by `VectorEnv.acquire`; the env itself may live in another process."""

    def __init__(self, vector: AsyncBridge, index: int) -> None:
        self.vector = vector
        self.index = index
        self._lent = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home = 0  # the thread of the loop
        self.spec = vector._specs[index]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        [command] = self.vector._resets([self.index], None if seed is None else [seed], options)
        [item] = self.vector._exchange([command])
        return _first(item)

    def step(self, action: str) -> Step:
        [item] = self.vector._exchange(self.vector._steps({self.index: action}))
        return _checked(item)

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()
        [command] = self.vector._resets([self.index], None if seed is None else [seed], options)
        return _first(await self.vector._ask(command))

    async def astep(self, action: str) -> Step:
        [command] = self.vector._steps({self.index: action})
        return _checked(await self.vector._ask(command))

    @property
    def player_rng(self) -> Random:
        """Seeding it seeds the player of the env itself, which is the one that draws."""
        return _FarPlayer(self)

    def sample_random_action(self) -> str:
        return str(self._remote("sample_random_action"))

    def expert_action(self) -> str | None:
        action: str | None = self._remote("expert_action")
        return action

    def example_action(self) -> str:
        return str(self._remote("example_action"))

    def _remote(self, name: str, *args: Any) -> Any:
        loop = self._loop
        if loop is None or not loop.is_running() or threading.get_ident() == self._home:
            return self.vector.call(name, *args, indices=[self.index])[0]
        # Players choose in threads, and a vector belongs to one thread: the loop's.
        command: Command = (self.index, CALL, (name, args, {}))
        item = asyncio.run_coroutine_threadsafe(self.vector._ask(command), loop).result()
        if item.failure is not None:
            raise item.failure.error()
        return item.observation

    def close(self) -> None:
        """Give the env back to its vector."""
        if self._lent:
            self._lent = False
            self.vector._lendable.append(self.index)

    async def aclose(self) -> None:
        self.close()


class _FarPlayer(Random):
    """Stands for a generator in another process."""

    _member: SubEnv | None = None

    def __init__(self, member: SubEnv) -> None:
        super().__init__()
        self._member = member

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(a, version)
        if self._member is not None:
            self._member._remote("player_rng.seed", a)


def _checked(item: EnvResult) -> Step:
    if item.failure is not None:
        raise item.failure.error()
    return Step(*item[1:])


def _first(item: EnvResult) -> Reset:
    step = _checked(item)
    return step.observation, step.info

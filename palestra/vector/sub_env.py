"""Use one env in a vector environment as an Env, for code that runs one env at a time."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any

from palestra.core import Env, Reset
from palestra.types import Step
from palestra.vector.async_bridge import AsyncBridge
from palestra.workers.env_runner import PlayerRngProxy
from palestra.workers.types import CALL, Command, EnvResult


class SubEnv(Env):
    """Env in a vector environment, returned by `VectorEnv.acquire`. It may run in another process."""

    def __init__(self, vector: AsyncBridge, index: int) -> None:
        self.vector = vector
        self.index = index
        self._acquired = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self.spec = vector._specs[index]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        [command] = self.vector._resets([self.index], None if seed is None else [seed], options)
        [result] = self.vector._exchange([command])
        return _first_observation(result)

    def step(self, action: str) -> Step:
        [result] = self.vector._exchange(self.vector._steps({self.index: action}))
        return _step_of(result)

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        [command] = self.vector._resets([self.index], None if seed is None else [seed], options)
        return _first_observation(await self.vector._request(command))

    async def astep(self, action: str) -> Step:
        [command] = self.vector._steps({self.index: action})
        return _step_of(await self.vector._request(command))

    @property
    def player_rng(self) -> Random:
        """Proxy whose `seed` method seeds the env's random player."""
        return PlayerRngProxy(lambda seed: self._call_env("player_rng.seed", seed))

    def sample_random_action(self) -> str:
        return str(self._call_env("sample_random_action"))

    def expert_action(self) -> str | None:
        action: str | None = self._call_env("expert_action")
        return action

    def expert_code(self) -> str | None:
        code: str | None = self._call_env("expert_code")
        return code

    def example_action(self) -> str:
        return str(self._call_env("example_action"))

    def render(self, mode: str = "text") -> str | bytes | None:
        view: str | bytes | None = self._call_env("render", mode)
        return view

    def _call_env(self, name: str, *args: Any) -> Any:
        loop = self._loop
        if loop is None or not loop.is_running() or threading.get_ident() == self._loop_thread:
            return self.vector.call(name, *args, indices=[self.index])[0]
        # Agents may run in other threads, but a VectorEnv must be used in its event loop's thread.
        command: Command = (self.index, CALL, (name, args, {}))
        result = asyncio.run_coroutine_threadsafe(self.vector._request(command), loop).result()
        if result.failure is not None:
            raise result.failure.error()
        return result.observation

    def close(self) -> None:
        """Release the env, so that its vector environment can use it again."""
        if self._acquired:
            self._acquired = False
            self.vector._free.append(self.index)

    async def aclose(self) -> None:
        self.close()


def _step_of(result: EnvResult) -> Step:
    if result.failure is not None:
        raise result.failure.error()
    return Step(*result[1:])


def _first_observation(result: EnvResult) -> Reset:
    step = _step_of(result)
    return step.observation, step.info

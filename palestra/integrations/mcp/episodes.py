"""Manage the episodes on an MCP server, with one environment per episode, for any number of clients."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from palestra.core import Env
from palestra.errors import EnvFailed, EpisodeOver, ResetNeeded
from palestra.seeding import check_seed, child_seed
from palestra.threads import run_in_thread
from palestra.types import Observation, Step, finite_reward

MAX_EPISODES = 256  # maximum number of running episodes; beyond it, the least recently used episode is closed
MAX_IDLE = 4


@dataclass(slots=True)
class Episode:
    """One client's running episode."""

    key: str
    env: Env
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # steps of one episode run sequentially
    over: bool = False


class Episodes:
    """All running episodes. With `single`, there is only one client, so steps need no episode key.

    A call that exceeds `step_timeout` or `reset_timeout` seconds, or a reward that is not a finite number, raises
    EnvFailed and ends the episode.
    """

    def __init__(
        self,
        make: Callable[[], Env],
        *,
        single: bool,
        seed: int | None = None,
        step_timeout: float | None = None,
        reset_timeout: float | None = None,
    ) -> None:
        self._step_timeout = step_timeout
        self._reset_timeout = reset_timeout
        self.single = single
        self._make = make
        self._seed = seed
        self._started = 0
        self._running: OrderedDict[str, Episode] = OrderedDict()
        self._idle: list[Env] = []  # environments from finished episodes, which can be reused

    async def reset(self, seed: int | None) -> tuple[Episode, Observation, dict[str, Any]]:
        """Start an episode."""
        if self.single:
            for key in list(self._running):  # a single client can no longer access its previous episode
                await self._drop(key)
        while len(self._running) >= MAX_EPISODES:
            await self._drop(next(iter(self._running)))
        episode_seed = check_seed(seed) if seed is not None else self._next_seed()
        async with _failing("reset", self._reset_timeout):
            env = self._idle.pop() if self._idle else await run_in_thread(self._make)
            episode = Episode(key=secrets.token_hex(8), env=env)
            observation, info = await run_in_thread(env.reset, seed=episode_seed)
        self._running[episode.key] = episode
        return episode, observation, info

    async def step(self, key: str | None, action: str) -> tuple[Episode, Step]:
        """Take an action in the episode `key`."""
        episode = self._find(key)
        async with episode.lock:
            if episode.over:
                raise EpisodeOver("the episode is over; call reset to start another one")
            try:
                async with _failing("step", self._step_timeout):
                    step = await run_in_thread(episode.env.step, action)
                step = step._replace(reward=finite_reward(step.reward))
            except EnvFailed:
                del self._running[episode.key]  # the environment is not closed, because a thread may still be using it
                raise
            episode.over = step.done
        return episode, step

    def close(self) -> None:
        for env in [*(episode.env for episode in self._running.values()), *self._idle]:
            env.close()
        self._running.clear()
        self._idle.clear()

    def _next_seed(self) -> int | None:
        if self._seed is None:
            return None
        self._started += 1
        return self._seed if self._started == 1 else child_seed(self._seed, f"episode {self._started}")

    def _find(self, key: str | None) -> Episode:
        if key is None and self.single and self._running:
            key = next(reversed(self._running))
        if key is None:
            raise ResetNeeded("no episode is running; call reset first")
        if key not in self._running:
            raise ResetNeeded(f"no episode {key[:40]!r}, or it has been closed; call reset to start a new episode")
        self._running.move_to_end(key)
        return self._running[key]

    async def _drop(self, key: str) -> None:
        episode = self._running.pop(key)
        if episode.over and len(self._idle) < MAX_IDLE:
            self._idle.append(episode.env)
        else:
            await episode.env.aclose()


@asynccontextmanager
async def _failing(name: str, seconds: float | None) -> AsyncIterator[None]:
    """Raise EnvFailed if the block takes longer than `seconds` or if the environment tries to end the process."""
    try:
        async with nullcontext() if seconds is None else asyncio.timeout(seconds):
            yield
    except TimeoutError as err:
        raise EnvFailed(f"{name} took longer than {seconds:g} seconds") from err
    except SystemExit as err:
        raise EnvFailed(f"{name} tried to end the process: {err!r}") from err

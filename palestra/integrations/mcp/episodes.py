"""Calls of `reset` and `step` from any number of clients -> episodes, each with an env of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from palestra.core import Env
from palestra.errors import EpisodeOver, ResetNeeded
from palestra.seeding import check_seed, child_seed
from palestra.types import Observation, Step

MOST = 256  # episodes at once; the one not played for longest makes room


@dataclass(slots=True)
class Episode:
    """One client's game."""

    key: str
    env: Env
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # steps of one episode follow each other
    over: bool = False


class Episodes:
    """Every episode that is being played. `single`: there is one client, so its last one need not be named."""

    def __init__(self, make: Callable[[], Env], *, single: bool, seed: int | None = None) -> None:
        self.single = single
        self._make = make
        self._seed = seed
        self._begun = 0
        self._playing: OrderedDict[str, Episode] = OrderedDict()
        self._idle: list[Env] = []  # of episodes that ended well, to be used again

    async def reset(self, seed: int | None) -> tuple[Episode, Observation, dict[str, Any]]:
        if self.single:
            for key in list(self._playing):  # a second game, and nobody can come back to the first
                await self._drop(key)
        while len(self._playing) >= MOST:
            await self._drop(next(iter(self._playing)))
        wanted = check_seed(seed) if seed is not None else self._next_seed()
        env = self._idle.pop() if self._idle else await asyncio.to_thread(self._make)
        episode = Episode(key=secrets.token_hex(8), env=env)
        observation, info = await env.areset(seed=wanted)
        self._playing[episode.key] = episode
        return episode, observation, info

    async def step(self, key: str | None, action: str) -> tuple[Episode, Step]:
        episode = self._found(key)
        async with episode.turn:
            if episode.over:
                raise EpisodeOver("the episode is over; call reset for another one")
            step = await episode.env.astep(action)
            episode.over = step.done
        return episode, step

    def close(self) -> None:
        for env in [*(episode.env for episode in self._playing.values()), *self._idle]:
            env.close()
        self._playing.clear()
        self._idle.clear()

    def _next_seed(self) -> int | None:
        if self._seed is None:
            return None
        self._begun += 1
        return self._seed if self._begun == 1 else child_seed(self._seed, f"episode {self._begun}")

    def _found(self, key: str | None) -> Episode:
        if key is None and self.single and self._playing:
            key = next(reversed(self._playing))
        if key is None:
            raise ResetNeeded("no episode has begun; call reset first")
        if key not in self._playing:
            raise ResetNeeded(
                f"there is no episode {key[:40]!r} (any more); call reset, which tells the name of a new one"
            )
        self._playing.move_to_end(key)
        return self._playing[key]

    async def _drop(self, key: str) -> None:
        episode = self._playing.pop(key)
        if episode.over and len(self._idle) < 4:
            self._idle.append(episode.env)
        else:
            await episode.env.aclose()

"""VectorEnv: many environments behind one interface, in lock-step or whichever are ready, whatever runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

from palestra.core import Env
from palestra.errors import BadValue, EnvFailed
from palestra.types import Observation
from palestra.vector.async_bridge import AsyncBridge
from palestra.vector.backend import SyncBackend
from palestra.vector.state import Actions
from palestra.vector.sub_env import SubEnv
from palestra.workers.types import BoolList, EnvResult, VectorStep

Resets = tuple[list[Observation], list[dict[str, Any]]]


class VectorEnv(AsyncBridge):
    """Made by `palestra.make_vec`. Every env has at most one command under way; results of one env are in order.

    Lock-step: `reset`, `step`. Whichever are ready: `send`, `recv`. The same without blocking an event loop: `areset`,
    `astep`, `arecv`, `async for`, and `acquire`. `failures` holds the latest failures, `failed` counts all of them. It
    is used from one thread at a time.
    """

    # Lock-step.

    def reset(
        self,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> Resets:
        """Begin an episode in every env, or in those at `indices`, in parallel.

        An int seeds all of them from one; a sequence gives each its own; without, every env goes on to its next one.
        """
        return _columns(self._exchange(self._resets(self._chosen(indices), seed, options)))

    def step(self, actions: Actions) -> VectorStep:
        """One action for every env, or for those in `{index: action}`; waits for all of them."""
        pool = self._pool
        plain = type(actions) is list and len(actions) == self.num_envs and set(map(type, actions)) == {str}
        if plain and isinstance(pool, SyncBackend) and not (self._flying or self._idle):
            return self._step_all(pool, actions)  # type: ignore[arg-type]  # a list, as `plain` says
        return _outcome(self._exchange(self._steps(actions)))

    def _step_all(self, pool: SyncBackend, actions: Sequence[str]) -> VectorStep:
        """The shortest way, for envs so cheap that every call counts."""
        self._check()
        try:
            outcome, marked = pool.step_all(actions)
        except KeyboardInterrupt:
            self.close()
            raise
        if marked or self._in_a_row:
            for index in marked:
                five: Any = (column[index] for column in outcome)
                self._note(EnvResult(index, *five))
            for index in self._in_a_row.keys() - marked:
                del self._in_a_row[index]
            self._check()
        return outcome

    # Whichever are ready.

    def send(self, actions: Actions) -> None:
        """Begin these steps; `recv` gives what comes of them."""
        self._send(self._steps(actions))

    def send_reset(
        self,
        indices: Iterable[int] | None = None,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Begin these resets; `recv` gives the first observations, with reward 0."""
        self._send(self._resets(self._chosen(indices), seed, options))

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> list[EnvResult]:
        """What is ready: as soon as `min_ready` are (or all that are under way), or after `timeout` seconds."""
        end = None if timeout is None else monotonic() + timeout
        while self._short_of(min_ready):
            left = None if end is None else max(0.0, end - monotonic())
            self._collect(left)
            if left == 0.0:
                break
        return self._take_ready()

    @property
    def in_flight(self) -> int:
        """How many envs have a command under way."""
        return len(self._flying)

    # The same in an event loop. `send` and `send_reset` never wait, so they serve there too.

    async def areset(
        self,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> Resets:
        """`reset`, without blocking the event loop."""
        return _columns(await self._aexchange(self._resets(self._chosen(indices), seed, options)))

    async def astep(self, actions: Actions) -> VectorStep:
        """`step`, without blocking the event loop; many may run at once for different envs."""
        return _outcome(await self._aexchange(self._steps(actions)))

    async def arecv(self, min_ready: int = 1, timeout: float | None = None) -> list[EnvResult]:
        """`recv`, without blocking the event loop. Cancelling it loses nothing."""
        try:
            async with asyncio.timeout(timeout):
                while self._short_of(min_ready):
                    await self._news()
        except TimeoutError:
            pass
        return self._take_ready()

    async def __aiter__(self) -> AsyncIterator[EnvResult]:
        """Results as they come, until nothing is under way; `send` in between to go on."""
        while True:
            while self._short_of(1):
                await self._news()
            self._check()
            if not self._ready:
                return
            yield self._ready.popleft()

    async def aclose(self) -> None:
        """`close`, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def acquire(self) -> SubEnv:
        """An env of this vector as an Env of its own, with `areset` and `astep`; closing it gives it back.

        `palestra.rollout.collect(agent, vec.acquire, ...)` plays on all of them from one event loop. The vector needs
        `autoreset="disabled"`; a failure is raised as EnvFailed.
        """
        if self.autoreset != "disabled":
            raise BadValue(f"an env that is lent is reset by its player: autoreset='disabled', not {self.autoreset!r}")
        if not self._lendable:
            raise EnvFailed(f"all {self.num_envs} envs of this vector are lent; close one first, or make more")
        return SubEnv(self, self._lendable.pop())

    # Anything else about the envs.

    @property
    def envs(self) -> list[Env]:
        """The envs themselves, where they live in this process (backends `sync` and `thread`)."""
        runners = getattr(self._pool, "runners", None)
        if runners is None:
            raise BadValue(f"the envs of backend {self.backend!r} live in other processes; use vec.call(name, ...)")
        return [runner.env for runner in runners]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __len__(self) -> int:
        return self.num_envs

    def __repr__(self) -> str:
        names = sorted(set(self.env_ids))
        return f"<VectorEnv of {self.num_envs} {', '.join(names)}, backend {self.backend}>"


def _columns(items: list[EnvResult]) -> Resets:
    return [item.observation for item in items], [item.info for item in items]


def _outcome(items: list[EnvResult]) -> VectorStep:
    _, observations, rewards, terminated, truncated, infos = zip(*items, strict=True) if items else ((),) * 6
    return VectorStep(list(observations), list(rewards), BoolList(terminated), BoolList(truncated), list(infos))

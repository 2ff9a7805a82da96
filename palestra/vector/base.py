"""Run many environments through one interface, in lock-step or individually."""

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
    """Vector environment, created by `palestra.make_vec`.

    `reset` and `step` run all envs in lock-step. `send` starts commands without waiting, and `recv` returns results as
    soon as they are ready. `areset`, `astep`, `arecv`, `async for` and `acquire` do the same without blocking an event
    loop. An env has at most one command in flight, so its results are in order. `failures` contains the latest
    failures, and `failed` is the number of all failures. The object must be used from one thread at a time.
    """

    # Lock-step.

    def reset(
        self,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> Resets:
        """Start an episode in every env, or only in the envs with the given indices.

        If `seed` is an int, the seeds of all envs are derived from it. If it is a sequence, it contains one seed per
        env. Without a seed, every env starts its next episode.
        """
        return _reset_columns(self._exchange(self._resets(self._selected(indices), seed, options)))

    def step(self, actions: Actions) -> VectorStep:
        """Take one action in every env, or only in the envs in a dict `{index: action}`, and wait for all results."""
        backend = self._backend
        plain = type(actions) is list and len(actions) == self.num_envs and set(map(type, actions)) == {str}
        if plain and isinstance(backend, SyncBackend) and not (self._in_flight or self._idle):
            return self._step_all(backend, actions)  # type: ignore[arg-type]  # `plain` is True only for a list
        return _step_columns(self._exchange(self._steps(actions)))

    def _step_all(self, backend: SyncBackend, actions: Sequence[str]) -> VectorStep:
        """Step all envs in a sync backend with as few Python calls as possible."""
        self._check()
        try:
            columns, marked = backend.step_all(actions)
        except KeyboardInterrupt:
            self.close()
            raise
        if marked or self._in_a_row:
            for index in marked:
                values: Any = (column[index] for column in columns)
                self._record(EnvResult(index, *values))
            for index in self._in_a_row.keys() - marked:
                del self._in_a_row[index]
            self._check()
        return columns

    # Send commands without waiting, and receive results as soon as they are ready.

    def send(self, actions: Actions) -> None:
        """Start steps without waiting. `recv` returns their results."""
        self._send(self._steps(actions))

    def send_reset(
        self,
        indices: Iterable[int] | None = None,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start resets without waiting. `recv` returns the first observations, with reward 0."""
        self._send(self._resets(self._selected(indices), seed, options))

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> list[EnvResult]:
        """Wait until `min_ready` results are ready or `timeout` has passed, and return all ready results.

        If fewer commands are in flight, wait only for those.
        """
        end = None if timeout is None else monotonic() + timeout
        while self._lacks(min_ready):
            left = None if end is None else max(0.0, end - monotonic())
            self._collect(left)
            if left == 0.0:
                break
        return self._take_ready()

    @property
    def in_flight(self) -> int:
        """Number of envs with a command in flight."""
        return len(self._in_flight)

    # Asynchronous variants. `send` and `send_reset` have none, because they never wait.

    async def areset(
        self,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> Resets:
        """Like `reset`, but without blocking the event loop."""
        return _reset_columns(await self._aexchange(self._resets(self._selected(indices), seed, options)))

    async def astep(self, actions: Actions) -> VectorStep:
        """Like `step`, but without blocking the event loop. Calls for different envs may run concurrently."""
        return _step_columns(await self._aexchange(self._steps(actions)))

    async def arecv(self, min_ready: int = 1, timeout: float | None = None) -> list[EnvResult]:
        """Like `recv`, but without blocking the event loop. No result is lost if the call is canceled."""
        try:
            async with asyncio.timeout(timeout):
                while self._lacks(min_ready):
                    await self._wait_for_replies()
        except TimeoutError:
            pass
        return self._take_ready()

    async def __aiter__(self) -> AsyncIterator[EnvResult]:
        """Yield results as they arrive, until no command is in flight. Call `send` inside the loop to continue."""
        while True:
            while self._lacks(1):
                await self._wait_for_replies()
            self._check()
            if not self._ready:
                return
            yield self._ready.popleft()

    async def aclose(self) -> None:
        """Like `close`, but without blocking the event loop."""
        await self._stop_receiver()
        await asyncio.to_thread(self.close)

    def acquire(self) -> SubEnv:
        """Return an unused env as an Env, whose `close` method makes it available again.

        This vector environment must have `autoreset="disabled"`. Failures are raised as EnvFailed.
        """
        if self.autoreset != "disabled":
            raise BadValue(f"acquire requires autoreset='disabled', got {self.autoreset!r}; pass it to make_vec")
        if not self._free:
            raise EnvFailed(f"all {self.num_envs} envs are in use; close one, or pass a larger num_envs to make_vec")
        return SubEnv(self, self._free.pop())

    @property
    def available(self) -> int:
        """Number of envs that can be acquired."""
        return len(self._free)

    @property
    def error(self) -> EnvFailed | None:
        """Error that made the whole vector environment fail, or None if it has not failed."""
        return self._error

    @property
    def envs(self) -> list[Env]:
        """Env objects. Only available with the `sync` and `thread` backends, which run them in this process."""
        runners = getattr(self._backend, "runners", None)
        if runners is None:
            raise BadValue(f"the {self.backend!r} backend runs envs in other processes; use vec.call(name, ...)")
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


def _reset_columns(results: list[EnvResult]) -> Resets:
    return [result.observation for result in results], [result.info for result in results]


def _step_columns(results: list[EnvResult]) -> VectorStep:
    _, observations, rewards, terminated, truncated, infos = zip(*results, strict=True) if results else ((),) * 6
    return VectorStep(list(observations), list(rewards), BoolList(terminated), BoolList(truncated), list(infos))

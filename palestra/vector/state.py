"""Track the state of a vector environment: commands in flight, received replies, and failures."""

from __future__ import annotations

import weakref
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from palestra.errors import BadValue, EnvFailed, EpisodeOver, ResetNeeded
from palestra.registry import EnvFactory
from palestra.seeding import check_seed, child_seed
from palestra.vector.backend import Backend
from palestra.workers.types import CALL, RESET, STEP, Autoreset, Command, EnvFailure, EnvResult, Reply

MAX_FAILURES = 1_000  # maximum number of failures stored in `failures`

Actions = Sequence[str] | Mapping[int, str]
_new_result = tuple.__new__  # called for every reply; takes half as long as EnvResult(...)


class VectorState:
    """Base class of VectorEnv that tracks its state. Its methods never wait for replies."""

    def __init__(
        self,
        backend: Backend,
        *,
        factories: Sequence[EnvFactory],
        seed: int,
        autoreset: Autoreset,
        backend_name: str,
        failures_in_a_row: int,
    ) -> None:
        self.env_ids = [factory.name for factory in factories]
        self.num_envs = len(self.env_ids)
        self.seed = seed
        self.autoreset: Autoreset = autoreset
        self.backend = backend_name
        self.failures: deque[EnvFailure] = deque(maxlen=MAX_FAILURES)
        self.failed = 0
        self._backend = backend
        self._specs = [factory.spec for factory in factories]
        self._in_flight: set[int] = set()
        self._calling: set[int] = set()  # envs whose command in flight is a CALL
        # Env index -> function that receives its next reply.
        self._claims: dict[int, Callable[[int, EnvResult], None]] = {}
        self._ready: deque[EnvResult] = deque()  # results for `recv`, which no other call is waiting for
        # Index of an env that cannot step -> reason.
        self._idle: dict[int, str] = dict.fromkeys(range(self.num_envs), "reset")
        self._in_a_row: dict[int, int] = {}  # env index -> number of consecutive failures
        self._failures_in_a_row = failures_in_a_row
        self._error: EnvFailed | None = None  # if set, every call raises this error
        self._free = list(range(self.num_envs - 1, -1, -1))  # envs that `acquire` may return
        self._outbox: list[Command] = []  # commands from the current event loop iteration
        self._responses: set[Future[EnvResult]] = set()
        self._sleepers: list[Future[None]] = []
        # The finalizer also runs when this object is garbage-collected and at interpreter exit.
        self._finalizer = weakref.finalize(self, backend.close)

    def close(self) -> None:
        """Close all envs and end all workers. May be called more than once."""
        self._error = self._error or EnvFailed("this VectorEnv is closed; create a new one with palestra.make_vec")
        self._finalizer()
        self._in_flight.clear()
        self._claims.clear()

    # Commands.

    def _selected(self, indices: Iterable[int] | None) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        selected = list(indices)
        for index in selected:
            self._check_index(index)
        return selected

    def _check_index(self, index: object) -> None:
        if not isinstance(index, int) or not 0 <= index < self.num_envs:
            raise BadValue(f"an env index must be an integer from 0 to {self.num_envs - 1}, got {index!r}")

    def _resets(
        self, selected: list[int], seed: int | Sequence[int] | None, options: dict[str, Any] | None
    ) -> list[Command]:
        roots: dict[int, int] = {}
        if isinstance(seed, Sequence):
            if len(seed) != len(selected):
                raise BadValue(f"a reset of {len(selected)} envs requires {len(selected)} seeds, got {len(seed)}")
            roots = {index: check_seed(one) for index, one in zip(selected, seed, strict=True)}
        elif seed is not None:
            self.seed = check_seed(seed)
            roots = {index: child_seed(self.seed, index) for index in selected}
        return [(index, RESET, (roots.get(index), options)) for index in selected]

    def _steps(self, actions: Actions) -> list[Command]:
        if isinstance(actions, Mapping):
            commands: list[Command] = [(index, STEP, action) for index, action in actions.items()]
            for index in actions:
                self._check_index(index)
        elif isinstance(actions, str) or len(actions) != self.num_envs:
            raise BadValue(f"expected {self.num_envs} actions or a dict {{index: action}}, got {len(actions)} actions")
        else:
            commands = [(index, STEP, action) for index, action in enumerate(actions)]
        idle = self._idle
        for index, _, action in commands:
            if not isinstance(action, str):
                raise BadValue(f"an action must be a string, got {type(action).__name__} for env {index}")
            if index in idle:
                if idle[index] == "reset":
                    raise ResetNeeded(f"env {index} has no episode yet; call reset() before the first step()")
                raise EpisodeOver(f"the episode of env {index} is over; call reset(indices=[{index}]) to start another")
        return commands

    def _admit(self, commands: list[Command]) -> None:
        """Mark commands as in flight. If one of them is invalid, raise an error and mark none of them."""
        self._check()
        indices = [command[0] for command in commands]
        if not self._in_flight.isdisjoint(indices):
            busy = sorted(self._in_flight.intersection(indices))
            raise BadValue(f"env {busy[0]} has a command in flight; call recv() to receive its result first")
        if len(set(indices)) < len(indices):
            raise BadValue("an env index occurs more than once; an env runs only one command at a time")
        self._in_flight.update(indices)
        if commands and commands[0][1] == CALL:
            self._calling.update(indices)

    def _submit(self, commands: list[Command], whole: bool = False) -> None:
        """Pass commands to the backend, after `_admit` has checked them."""
        try:
            self._backend.submit(commands, whole)
            if self._backend.immediate:
                self._receive(self._backend.collect(0.0))
        except KeyboardInterrupt:
            self.close()
            raise

    def _send(self, commands: list[Command]) -> None:
        self._admit(commands)
        self._submit(commands)

    # Replies.

    def _receive(self, replies: list[Reply]) -> None:
        claims, in_flight, add_ready = self._claims, self._in_flight, self._ready.append
        for reply in replies:
            result = _new_result(EnvResult, reply[:6])
            index = reply[0]
            in_flight.discard(index)
            if self._calling and index in self._calling:
                self._calling.discard(index)  # a CALL does not affect the episode
            elif result[3] or result[4] or index in self._idle or index in self._in_a_row or "failure" in result[5]:
                self._record(result)
            claim = claims.pop(index, None) if claims else None
            if claim is None:
                add_ready(result)
            else:
                claim(index, result)

    def _record(self, result: EnvResult) -> None:
        """Update the state of an env whose episode starts, ends or fails."""
        index = result.index
        failure = result.failure
        if failure is None:
            self._in_a_row.pop(index, None)
        else:
            self.failures.append(failure)
            self.failed += 1
            self._in_a_row[index] = self._in_a_row.get(index, 0) + 1
            if self._in_a_row[index] > self._failures_in_a_row:
                self._error = EnvFailed(
                    f"env {index} failed {self._in_a_row[index]} times in a row; last failure: {failure.error()}"
                )
        if result.done and self.autoreset == "disabled":
            self._idle[index] = "over"
        else:
            self._idle.pop(index, None)

    def _claim(self, commands: list[Command]) -> dict[int, EnvResult]:
        """Return a dict that will receive the replies to these commands."""
        results: dict[int, EnvResult] = {}
        self._claims.update(dict.fromkeys((command[0] for command in commands), results.__setitem__))
        return results

    def _unclaim(self, commands: list[Command], results: dict[int, EnvResult]) -> None:
        """Leave a canceled caller's replies for `recv`."""
        for index, _, _ in commands:
            self._claims.pop(index, None)
        self._ready.extend(results.values())

    def _take_ready(self) -> list[EnvResult]:
        self._check()
        results = list(self._ready)
        self._ready.clear()
        return results

    def _lacks(self, wanted: int) -> bool:
        """Return whether `recv` must wait: fewer than `wanted` results are ready, and others are in flight."""
        unclaimed = len(self._in_flight) - len(self._claims)
        return len(self._ready) < wanted and unclaimed > 0

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

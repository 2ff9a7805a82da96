"""Commands in flight, claimed replies, idle envs and recorded failures of a vector."""

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

KEPT_FAILURES = 1_000  # in `failures`; `failed` counts all

Actions = Sequence[str] | Mapping[int, str]
_ready = tuple.__new__  # half the price of calling EnvResult, for every reply


class VectorState:
    """The side of a VectorEnv that does not wait."""

    def __init__(
        self,
        pool: Backend,
        *,
        factories: Sequence[EnvFactory],
        seed: int,
        autoreset: Autoreset,
        backend: str,
        failures_in_a_row: int,
    ) -> None:
        self.env_ids = [factory.name for factory in factories]
        self.num_envs = len(self.env_ids)
        self.seed = seed
        self.autoreset: Autoreset = autoreset
        self.backend = backend
        self.failures: deque[EnvFailure] = deque(maxlen=KEPT_FAILURES)
        self.failed = 0
        self._pool = pool
        self._specs = [factory.spec for factory in factories]
        self._flying: set[int] = set()
        self._calling: set[int] = set()  # those whose command is a call
        self._claims: dict[int, Callable[[int, EnvResult], None]] = {}  # who waits for the reply of one env
        self._ready: deque[EnvResult] = deque()  # replies nobody claimed, for `recv`
        self._idle: dict[int, str] = dict.fromkeys(range(self.num_envs), "reset")  # cannot be stepped, and why
        self._in_a_row: dict[int, int] = {}
        self._failures_in_a_row = failures_in_a_row
        self._given_up: EnvFailed | None = None
        self._lendable = list(range(self.num_envs - 1, -1, -1))
        self._outbox: list[Command] = []  # asked for in this turn of the event loop
        self._answers: set[Future[EnvResult]] = set()
        self._sleepers: list[Future[None]] = []
        self._finalizer = weakref.finalize(self, pool.close)  # also when it is forgotten, and at the end of the program

    def close(self) -> None:
        """End every worker and close every env. May be called twice."""
        self._finalizer()
        self._flying.clear()
        self._claims.clear()
        self._given_up = self._given_up or EnvFailed("this vector is closed; make another with palestra.make_vec")

    # Commands.

    def _chosen(self, indices: Iterable[int] | None) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        chosen = list(indices)
        for index in chosen:
            self._check_index(index)
        return chosen

    def _check_index(self, index: object) -> None:
        if not isinstance(index, int) or not 0 <= index < self.num_envs:
            raise BadValue(f"this vector has envs 0 to {self.num_envs - 1}, got {index!r}")

    def _resets(
        self, chosen: list[int], seed: int | Sequence[int] | None, options: dict[str, Any] | None
    ) -> list[Command]:
        roots: dict[int, int] = {}
        if isinstance(seed, Sequence):
            if len(seed) != len(chosen):
                raise BadValue(f"{len(chosen)} envs are reset, and {len(seed)} seeds were given; give one each")
            roots = {index: check_seed(one) for index, one in zip(chosen, seed, strict=True)}
        elif seed is not None:
            self.seed = check_seed(seed)
            roots = {index: child_seed(self.seed, index) for index in chosen}
        return [(index, RESET, (roots.get(index), options)) for index in chosen]

    def _steps(self, actions: Actions) -> list[Command]:
        if isinstance(actions, Mapping):
            commands: list[Command] = [(index, STEP, action) for index, action in actions.items()]
            for index in actions:
                self._check_index(index)
        elif isinstance(actions, str) or len(actions) != self.num_envs:
            raise BadValue(f"one action for each of {self.num_envs} envs, or {{index: action}}; got {len(actions)}")
        else:
            commands = [(index, STEP, action) for index, action in enumerate(actions)]
        idle = self._idle
        for index, _, action in commands:
            if not isinstance(action, str):
                raise BadValue(f"an action is a string, got {type(action).__name__} for env {index}")
            if index in idle:
                if idle[index] == "reset":
                    raise ResetNeeded(f"env {index} has no episode yet; call reset() before the first step()")
                raise EpisodeOver(f"the episode of env {index} is over; call reset(indices=[{index}]) for the next one")
        return commands

    def _admit(self, commands: list[Command]) -> None:
        """Enter commands as under way, all or none."""
        self._check()
        indices = [command[0] for command in commands]
        if not self._flying.isdisjoint(indices):
            busy = sorted(self._flying.intersection(indices))
            raise BadValue(f"env {busy[0]} has a command under way; recv() its result first")
        if len(set(indices)) < len(indices):
            raise BadValue("an env takes one command at a time, and one was named twice")
        self._flying.update(indices)
        if commands and commands[0][1] == CALL:
            self._calling.update(indices)

    def _submit(self, commands: list[Command], whole: bool = False) -> None:
        """Hand over commands that were admitted."""
        try:
            self._pool.submit(commands, whole)
            if self._pool.immediate:
                self._absorb(self._pool.collect(0.0))
        except KeyboardInterrupt:
            self.close()
            raise

    def _send(self, commands: list[Command]) -> None:
        self._admit(commands)
        self._submit(commands)

    # Replies.

    def _absorb(self, replies: list[Reply]) -> None:
        claims, flying, keep = self._claims, self._flying, self._ready.append
        for reply in replies:
            ready = _ready(EnvResult, reply[:6])
            index = reply[0]
            flying.discard(index)
            if self._calling and index in self._calling:
                self._calling.discard(index)  # says nothing about an episode
            elif ready[3] or ready[4] or index in self._idle or index in self._in_a_row or "failure" in ready[5]:
                self._note(ready)
            claim = claims.pop(index, None) if claims else None
            if claim is None:
                keep(ready)
            else:
                claim(index, ready)

    def _note(self, ready: EnvResult) -> None:
        """Keep the books on an env whose episode begins, ends or fails."""
        index = ready.index
        failure = ready.failure
        if failure is None:
            self._in_a_row.pop(index, None)
        else:
            self.failures.append(failure)
            self.failed += 1
            self._in_a_row[index] = self._in_a_row.get(index, 0) + 1
            if self._in_a_row[index] > self._failures_in_a_row:
                self._given_up = EnvFailed(
                    f"env {index} failed {self._in_a_row[index]} times in a row; the last time: {failure.error()}"
                )
        if ready.done and self.autoreset == "disabled":
            self._idle[index] = "over"
        else:
            self._idle.pop(index, None)

    def _claim(self, commands: list[Command]) -> dict[int, EnvResult]:
        """Where the replies to these commands will be put."""
        got: dict[int, EnvResult] = {}
        self._claims.update(dict.fromkeys((command[0] for command in commands), got.__setitem__))
        return got

    def _unclaim(self, commands: list[Command], got: dict[int, EnvResult]) -> None:
        """The waiter gave up: what has come and what will come is for `recv`."""
        for index, _, _ in commands:
            self._claims.pop(index, None)
        self._ready.extend(got.values())

    def _take_ready(self) -> list[EnvResult]:
        self._check()
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def _short_of(self, wanted: int) -> bool:
        """Are fewer than `wanted` ready, while more may come?"""
        unclaimed = len(self._flying) - len(self._claims)
        return len(self._ready) < wanted and unclaimed > 0

    def _check(self) -> None:
        if self._given_up is not None:
            raise self._given_up

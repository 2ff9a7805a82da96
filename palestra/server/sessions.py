"""Sessions: who has which environment, until when, and which call of it is next. Pure bookkeeping, no waiting."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from palestra.remote.protocol import Fault
from palestra.server.worker_pool import Worker

Result: TypeAlias = bytes | Fault
Tell: TypeAlias = Callable[[Result], None]
Cause: TypeAlias = Literal["closed", "expired", "deadline", "crashed", "worker", "stopped"]

REMEMBERED = 20_000  # ended sessions whose end can still be told


class Kept(Protocol):
    """An answer that several sessions share."""

    def alone(self, key: int, seq: int) -> bytes: ...


class Session:
    """One client's environment."""

    __slots__ = (
        "began",
        "born",
        "broken",
        "closing",
        "create_fingerprint",
        "creation",
        "env",
        "id",
        "key",
        "last",
        "last_fingerprint",
        "last_id",
        "last_write",
        "lease",
        "made",
        "made_write",
        "owner",
        "seq",
        "until",
        "waiters",
        "worker",
        "write",
    )

    def __init__(self, *, name: str, key: int, worker: Worker, env: str, owner: str, lease: float, now: float) -> None:
        self.id = name
        self.key = key  # its number in the workers
        self.worker = worker
        self.env = env
        self.owner = owner
        self.lease = lease
        self.born = now
        self.until = now + lease
        self.seq = 0  # the number of the next call
        self.last_id = ""  # the id of the call before
        self.last_fingerprint = 0  # what it asked
        self.last: Result | Kept | None = None  # what it was answered
        self.last_write = ""  # as bytes of which kind
        self.write = ""  # as which the call under way will be
        self.waiters: list[Tell] | None = None  # whom the call under way is told; None: there is none
        self.began = 0.0  # when it began
        self.broken: Fault | None = None  # why the environment cannot go on
        self.closing: Cause | None = None  # ended while a call was under way
        self.creation = ""  # the id of the request that made it
        self.create_fingerprint = 0  # what that asked
        self.made: bytes | None = None  # what that was answered
        self.made_write = ""  # as bytes of which kind


class Sessions:
    """All of one server, and how the latest ones ended."""

    def __init__(self, node: str = "") -> None:
        self._node = f"{node}." if node else ""
        self.by_id: dict[str, Session] = {}
        self.by_key: dict[int, Session] = {}
        self._creations: dict[tuple[str, str], Session] = {}
        self._counts: dict[str, int] = {}
        self._ended: OrderedDict[str, tuple[str, Cause]] = OrderedDict()
        self._watched: dict[str, Callable[[Cause | None], None]] = {}
        self._key = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def open(self, *, worker: Worker, env: str, owner: str, lease: float, creation: str, now: float) -> Session:
        self._key += 1
        name = self._node + secrets.token_urlsafe(16)
        session = Session(name=name, key=self._key, worker=worker, env=env, owner=owner, lease=lease, now=now)
        self.by_id[name] = self.by_key[self._key] = session
        self._counts[owner] = self._counts.get(owner, 0) + 1
        worker.sessions.add(self._key)
        if creation:
            session.creation = creation
            self._creations[owner, creation] = session
        return session

    def end(self, session: Session, cause: Cause | None) -> None:
        """Forget a session; its end can be told for a while (None: it never began)."""
        if self.by_id.pop(session.id, None) is None:
            return
        owner = session.owner
        if self._counts[owner] == 1:
            del self._counts[owner]
        else:
            self._counts[owner] -= 1
        if session.creation:
            self._creations.pop((owner, session.creation), None)
        if session.waiters is None:
            self.by_key.pop(session.key, None)
        if cause is not None:
            self._ended[session.id] = (owner, cause)
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        told = self._watched.pop(session.id, None)
        if told is not None:
            told(cause)

    def watch(self, session: Session, told: Callable[[Cause | None], None]) -> None:
        """Have it told when a session ends, however it does."""
        self._watched[session.id] = told

    def forget_key(self, key: int) -> None:
        self.by_key.pop(key, None)

    def find(self, name: str, owner: str) -> Session | None:
        session = self.by_id.get(name)
        return session if session is not None and session.owner == owner else None  # another client's is not there

    def at(self, key: int) -> Session | None:
        return self.by_key.get(key)

    def created_by(self, owner: str, request: str) -> Session | None:
        return self._creations.get((owner, request))

    def held_by(self, owner: str) -> int:
        return self._counts.get(owner, 0)

    def how_ended(self, name: str, owner: str) -> Cause | None:
        whose, cause = self._ended.get(name, ("", None))
        return cause if whose == owner else None

    def all(self) -> list[Session]:
        return list(self.by_id.values())

    def known(self) -> list[Session]:
        """All, and those that have ended while a call of theirs goes on."""
        return list(self.by_key.values())

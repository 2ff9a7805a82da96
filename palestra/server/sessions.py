"""Table of all sessions, with each session's owner, lease, sequence number and last response."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from palestra.remote.protocol import Fault
from palestra.server.worker_pool import Worker

Result: TypeAlias = bytes | Fault
Respond: TypeAlias = Callable[[Result], None]  # function that sends the response to one request
Cause: TypeAlias = Literal["closed", "expired", "deadline", "crashed", "worker", "stopped"]

MAX_ENDED = 20_000  # maximum number of ended sessions whose cause is stored


class SharedResponse(Protocol):
    """Encoded rows from a vector step, stored as the last response in several sessions."""

    def extract(self, key: int, seq: int) -> bytes:
        """Return the result for the session `key` as the response to a single step."""
        ...


class Session:
    """State of one session: its worker, owner, lease, running call and stored responses."""

    __slots__ = (
        "call_started",
        "create_fingerprint",
        "create_id",
        "create_media_type",
        "create_response",
        "deadline",
        "end_cause",
        "env",
        "expires_at",
        "failure",
        "id",
        "key",
        "last_fingerprint",
        "last_id",
        "last_media_type",
        "last_response",
        "lease",
        "media_type",
        "owner",
        "seq",
        "transcoded",
        "waiters",
        "worker",
    )

    def __init__(self, *, name: str, key: int, worker: Worker, env: str, owner: str, lease: float, now: float) -> None:
        self.id = name
        self.key = key  # integer that identifies the session in messages to workers
        self.worker = worker
        self.env = env
        self.owner = owner
        self.lease = lease
        self.expires_at = now + lease
        self.seq = 0  # sequence number of the next call
        # Receivers of the running call's response; None if no call is running.
        self.waiters: list[Respond] | None = None
        self.call_started = 0.0
        self.deadline = 0.0  # time at which the running call is abandoned
        self.media_type = ""  # media type of the running call's response
        self.failure: Fault | None = None  # set if the environment is unusable until the next reset
        self.end_cause: Cause | None = None  # set if the session ended while a call was running
        self.last_id = ""  # request id of the last call with a sequence number, to detect retries
        self.last_fingerprint = 0
        self.last_response: Result | SharedResponse | None = None
        self.last_media_type = ""
        self.transcoded: tuple[bytes, bytes] | None = None  # a response, and the same response in the other media type
        self.create_id = ""  # request id of the creation, to detect retries
        self.create_fingerprint = 0
        self.create_response: bytes | None = None
        self.create_media_type = ""


class Sessions:
    """All sessions on one server, and the reasons why recent sessions ended."""

    def __init__(self, node: str = "") -> None:
        self._prefix = f"{node}." if node else ""
        self.by_id: dict[str, Session] = {}
        self.by_key: dict[int, Session] = {}  # includes ended sessions whose last call is still running
        self._by_create_id: dict[tuple[str, str], Session] = {}
        self._count_by_owner: dict[str, int] = {}
        self._ended: OrderedDict[str, tuple[str, Cause]] = OrderedDict()
        self._listeners: dict[str, Callable[[Cause | None], None]] = {}
        self._last_key = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def open(self, *, worker: Worker, env: str, owner: str, lease: float, create_id: str, now: float) -> Session:
        """Create a session with a random name and add it to the table."""
        self._last_key += 1
        key = self._last_key
        name = self._prefix + secrets.token_urlsafe(16)
        session = Session(name=name, key=key, worker=worker, env=env, owner=owner, lease=lease, now=now)
        self.by_id[name] = self.by_key[key] = session
        self._count_by_owner[owner] = self._count_by_owner.get(owner, 0) + 1
        worker.sessions.add(key)
        if create_id:
            session.create_id = create_id
            self._by_create_id[owner, create_id] = session
        return session

    def end(self, session: Session, cause: Cause | None) -> None:
        """Remove a session and store the cause. With cause None, which means that creating it failed, store nothing."""
        if self.by_id.pop(session.id, None) is None:
            return
        owner = session.owner
        if self._count_by_owner[owner] == 1:
            del self._count_by_owner[owner]
        else:
            self._count_by_owner[owner] -= 1
        if session.create_id:
            self._by_create_id.pop((owner, session.create_id), None)
        if session.waiters is None:
            self.by_key.pop(session.key, None)
        if cause is not None:
            self._ended[session.id] = (owner, cause)
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        listener = self._listeners.pop(session.id, None)
        if listener is not None:
            listener(cause)

    def on_end(self, session: Session, listener: Callable[[Cause | None], None]) -> None:
        """Call `listener` with the cause when the session ends."""
        self._listeners[session.id] = listener

    def forget_key(self, key: int) -> None:
        """Remove an ended session's entry from `by_key`."""
        self.by_key.pop(key, None)

    def find(self, name: str, owner: str) -> Session | None:
        """Return the session named `name` if it belongs to `owner`, otherwise None."""
        session = self.by_id.get(name)
        return session if session is not None and session.owner == owner else None

    def created_by(self, owner: str, create_id: str) -> Session | None:
        """Return the session that this owner created with the request id `create_id`, or None."""
        return self._by_create_id.get((owner, create_id))

    def count(self, owner: str) -> int:
        """Return the number of open sessions owned by `owner`."""
        return self._count_by_owner.get(owner, 0)

    def end_cause(self, name: str, owner: str) -> Cause | None:
        """Return why a session owned by `owner` ended, or None if no cause is stored."""
        ended_owner, cause = self._ended.get(name, ("", None))
        return cause if ended_owner == owner else None

    def all(self) -> list[Session]:
        """Return all open sessions."""
        return list(self.by_id.values())

    def with_calls(self) -> list[Session]:
        """Return the open sessions and the ended sessions whose last call is still running."""
        return list(self.by_key.values())

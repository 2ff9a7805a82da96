"""Assign conversations to servers: all requests in a conversation go to one server, which caches their prefix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar


class Server(Protocol):
    """A server that may be down."""

    up: bool


S = TypeVar("S", bound=Server)


class Router(Generic[S]):
    """Sticky routing: a conversation starts on the server with the fewest of them, and moves only if that is down."""

    def __init__(self, servers: Sequence[S]) -> None:
        self._servers = list(servers)
        self._assigned: dict[Hashable, int] = {}
        self._conversations: Counter[int] = Counter()
        self._running: Counter[int] = Counter()

    def choose(self, conversation: Hashable | None) -> S | None:
        """Return the server for the next request of a conversation; None if every server is down."""
        up = [index for index, server in enumerate(self._servers) if server.up]
        if not up:
            return None
        if conversation is None:
            return self._servers[min(up, key=lambda index: (self._running[index], index))]
        index = self._assigned.get(conversation)
        if index is None or index not in up:
            self.forget(conversation)
            index = min(up, key=lambda index: (self._conversations[index], index))
            self._assigned[conversation] = index
            self._conversations[index] += 1
        return self._servers[index]

    def started(self, server: S) -> None:
        """Count a request that was sent to `server`."""
        self._running[self._servers.index(server)] += 1

    def finished(self, server: S) -> None:
        """Count a request to `server` that has ended."""
        self._running[self._servers.index(server)] -= 1

    @property
    def running(self) -> int:
        """Number of requests that have not ended."""
        return self._running.total()

    def forget(self, conversation: Hashable) -> None:
        """Remove a finished conversation."""
        index = self._assigned.pop(conversation, None)
        if index is not None:
            self._conversations[index] -= 1

"""Main loop for a worker process, which reads batches of commands, runs them, and sends the replies in batches."""

from __future__ import annotations

import os
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from palestra.workers.wire import CHUNK, ActivityTable, FrameDecoder, encode_frame


class CommandLoop(ABC):
    """Base class for the workers of vector environments and of the environment server.

    A subclass runs the commands in a batch (usually on an `Executor`), appends each reply to `_done`, and calls
    `_flush` when replies should be sent.
    """

    def __init__(self, sock: socket.socket, activity: ActivityTable) -> None:
        self._sock = sock
        self._activity = activity
        self._done: deque[Any] = deque()
        self._sending = threading.Lock()

    @abstractmethod
    def handle(self, batch: Any) -> None:
        """Run the commands in one message, or pass them to an executor."""

    @abstractmethod
    def close_envs(self) -> None:
        """Close all envs. Called after the parent has closed the connection."""

    def encode(self, replies: list[Any]) -> bytes:
        """Encode replies as one frame. An empty result means that there is nothing to send."""
        return encode_frame(replies)

    def serve(self, batches: list[Any], decoder: FrameDecoder) -> None:
        """Handle messages until the parent closes the connection."""
        while True:
            for batch in batches:
                self.handle(batch)
            try:
                data = self._sock.recv(CHUNK)
            except ConnectionError:
                break
            if not data:
                break
            decoder.feed(data)
            batches = decoder.messages()
        self.close_envs()

    def _flush(self) -> None:
        """Send all finished replies."""
        with self._sending:
            replies = []
            while self._done:  # the deque is not replaced, because another thread may be appending to it
                replies.append(self._done.popleft())
            data = self.encode(replies) if replies else b""
            if data:
                try:
                    self._sock.sendall(data)
                except OSError:
                    os._exit(0)  # the parent has exited

"""Encode messages between a worker and its parent, and record a worker's activity in shared memory."""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.optional import require
from palestra.workers.types import Factory

HEADER = 8  # number of bytes that encode the length of a message
CHUNK = 1 << 18


def encode_frame(message: Any) -> bytes:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(HEADER, "little") + data


class FrameDecoder:
    """Incremental decoder for framed messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def messages(self) -> list[Any]:
        """Return the messages that have been received completely."""
        buffer, start, messages = self._buffer, 0, []
        with memoryview(buffer) as view:
            while len(buffer) - start >= HEADER:
                end = start + HEADER + int.from_bytes(view[start : start + HEADER], "little")
                if end > len(buffer):
                    break
                messages.append(pickle.loads(view[start + HEADER : end]))  # noqa: S301  # the sender is trusted
                start = end
        if start:
            del buffer[:start]
        return messages


class ActivityTable:
    """Shared memory in which a worker records each thread's env and deadline, and which env caused its exit.

    The parent can read it even after the worker has exited. Each thread has its own entry, called a lane. The values
    are aligned 8-byte numbers, so that reads are atomic.
    """

    def __init__(self, lanes: int, fd: int | None = None) -> None:
        self.lanes = lanes
        size = 8 * (1 + 2 * lanes)
        if fd is None:
            import tempfile  # workers do not need it

            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
            self._file.truncate(size)
            fd = self._file.fileno()
        self._map = mmap.mmap(fd, size)
        self._numbers = memoryview(self._map).cast("d")

    @property
    def fd(self) -> int:
        return self._file.fileno()

    def start(self, lane: int, index: int, deadline: float) -> None:
        self._numbers[2 * lane + 2] = deadline
        self._numbers[2 * lane + 1] = index + 1

    def start_untimed(self, lane: int, index: int) -> None:
        """Record the env that a lane is running, without changing the lane's deadline."""
        self._numbers[2 * lane + 1] = index + 1

    def end(self, lane: int) -> None:
        self._numbers[2 * lane + 1] = 0

    def blame(self, index: int) -> None:
        """Record the env that causes the worker to exit."""
        self._numbers[0] = index + 1

    @property
    def blamed(self) -> int | None:
        return int(self._numbers[0]) - 1 if self._numbers[0] else None

    def running(self) -> dict[int, float]:
        """Return the deadline of each env that is running a command."""
        numbers = self._numbers
        return {int(numbers[lane]) - 1: numbers[lane + 1] for lane in range(1, 2 * self.lanes + 1, 2) if numbers[lane]}

    def close(self) -> None:
        self._numbers.release()
        self._map.close()
        self._file.close()


def dump_factories(factories: Sequence[Factory]) -> bytes:
    """Pickle env factories for another process. Factories that it could not import are pickled by value."""
    try:
        data = pickle.dumps(factories, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        data = b""
    if data and b"__main__" not in data:
        return data
    cloudpickle = require("cloudpickle", extra="vector")
    try:
        by_value: bytes = cloudpickle.dumps(factories)
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise BadValue(
            f"these envs cannot be sent to another process: {err}. Use the 'sync' or 'thread' backend, or define the "
            "env in an importable module"
        ) from err
    return by_value

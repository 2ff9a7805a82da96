"""Step many sessions with one request and one response.

The response contains one row per step: [index, observation, reward, terminated, truncated, info, episode]. `index` is
the position of the step in the request, and `episode` is the number of the running episode if the session has
autoreset. For speed, workers encode the rows, and the server only concatenates the bytes. Each session stores the
encoded rows that include its own row, and they are decoded only for a retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palestra.remote.protocol import MSGPACK, OUTCOME, Fault, Step, Steps, encoder, fault
from palestra.server import worker as commands
from palestra.server.responses import late, with_seq
from palestra.server.sessions import Respond, Result
from palestra.server.worker_pool import Worker

if TYPE_CHECKING:
    from palestra.server.calls import Calls


class StepError(msgspec.Struct, kw_only=True):
    """Error for one step in a vector request."""

    index: int
    error: Fault


class StepRows:
    """Encoded rows for several sessions, which one worker returned for a vector request."""

    __slots__ = ("_decoded", "data", "keys", "media_type")

    def __init__(self, keys: Sequence[int], data: bytes, media_type: str) -> None:
        self.keys = keys  # session keys in the order of the rows
        self.data = data  # encoded array of rows
        self.media_type = media_type
        self._decoded: dict[int, list[Any]] | None = None

    @property
    def by_key(self) -> dict[int, list[Any]]:
        if self._decoded is None:
            self._decoded = dict(zip(self.keys, _decode(self.media_type)(self.data), strict=True))
        return self._decoded

    def extract(self, key: int, seq: int) -> bytes:
        """Return one session's row as the response to a single step."""
        body = dict(zip(OUTCOME, self.by_key[key][1:], strict=True))
        if body["episode"] is None:
            del body["episode"]
        return with_seq(encoder(self.media_type)(body), seq, self.media_type)

    def without(self, keys: set[int]) -> bytes:
        """Return the encoded rows for all sessions except `keys`."""
        rows = [row for key, row in self.by_key.items() if key not in keys]
        data: bytes = encoder(self.media_type)(rows)
        return data


class VectorResponse:
    """Collects the rows and errors for a vector request, and responds when all steps have finished."""

    __slots__ = ("_blocks", "_errors", "_missing", "_on_done", "_respond", "_size", "_timer", "media_type", "started")

    def __init__(self, size: int, media_type: str, respond: Respond, on_done: Callable[[], object]) -> None:
        self.media_type = media_type
        self.started = monotonic()
        self._size = size
        self._missing = size
        self._blocks: list[bytes] = []  # encoded arrays of rows
        self._errors: list[StepError] = []
        self._respond = respond
        self._on_done = on_done
        self._timer: asyncio.TimerHandle | None = None

    def set_timeout(self, seconds: float) -> None:
        """Send the response after `seconds`, with the error `not_yet` for every step that has not finished."""
        if self._missing:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out, seconds)

    def add_rows(self, rows: bytes, count: int) -> None:
        """Add an encoded array of `count` rows."""
        if self._missing:
            if count:
                self._blocks.append(rows)
            self._finish(count)

    def add_result(self, index: int, result: Result) -> None:
        """Add the result of a step that was handled individually."""
        if not self._missing:
            return  # the response was already sent after the timeout
        if isinstance(result, Fault):
            self._errors.append(StepError(index=index, error=result))
        else:
            body = _decode(self.media_type)(result)
            self._blocks.append(encoder(self.media_type)([[index, *(body.get(name) for name in OUTCOME)]]))
        self._finish(1)

    def _finish(self, count: int) -> None:
        self._missing -= count
        if self._missing == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._on_done()
            self._respond(self._encode())

    def _time_out(self, seconds: float) -> None:
        finished = {error.index for error in self._errors}
        for block in self._blocks:
            finished.update(row[0] for row in _decode(self.media_type)(block))
        missing = [index for index in range(self._size) if index not in finished]
        self._errors += [StepError(index=index, error=late(seconds)) for index in missing]
        self._finish(self._missing)

    def _encode(self) -> bytes:
        errors: bytes = encoder(self.media_type)(self._errors)
        if self.media_type == MSGPACK:
            rows = _array_header(self._size - len(self._errors)) + b"".join(map(_without_header, self._blocks))
            return b"\x82" + _ROWS + rows + _ERRORS + errors
        return b'{"rows":[%b],"errors":%b}' % (b",".join(block[1:-1] for block in self._blocks), errors)


class VectorSteps:
    """Handles vector requests. `step` handles the steps that cannot start immediately, such as retries."""

    def __init__(self, calls: Calls, step: Callable[[Step, str, str, Respond], None]) -> None:
        self._calls = calls
        self._step = step
        self._responses: dict[int, VectorResponse] = {}  # pending responses, keyed by request number
        self._last_number = 0

    def submit(self, request: Steps, owner: str, media_type: str, respond: Respond) -> None:
        """Send all steps that can start immediately in one message per worker, and handle the others individually."""
        calls = self._calls
        self._last_number += 1
        number = self._last_number
        response = VectorResponse(len(request.steps), media_type, respond, partial(self._responses.pop, number, None))
        self._responses[number] = response
        deadline = response.started + calls.step_timeout
        free = calls.free
        # (session keys, indexes, actions) per worker.
        batches: dict[Worker, tuple[list[int], list[int], list[str]]] = {}
        request_id, find = request.id, calls.sessions.by_id.get
        repeated: set[str] = set()  # sessions whose step was handled individually
        for index, (name, seq, action) in enumerate(request.steps):
            session = find(name)
            add_result = partial(response.add_result, index)
            if (
                free > 0
                and session is not None
                and seq == session.seq
                and session.waiters is None
                and session.failure is None
                and session.owner == owner
            ):
                free -= 1
                session.seq = seq + 1
                session.last_id = request_id
                session.last_fingerprint = hash(action)
                session.last_response = None
                session.last_media_type = session.media_type = media_type
                session.waiters = [add_result]
                session.call_started = response.started
                session.deadline = deadline
                batch = batches.get(session.worker)
                if batch is None:
                    batch = batches[session.worker] = ([], [], [])
                batch[0].append(session.key)
                batch[1].append(index)
                batch[2].append(action)
            elif name in repeated:
                add_result(fault("bad_request", "a session may occur only once in a vector step"))
            elif free > 0:
                repeated.add(name)
                self._step(Step(id=request_id, session=name, seq=seq, action=action), owner, media_type, add_result)
            else:
                add_result(calls.full())
        if request.timeout is not None:
            response.set_timeout(request.timeout)
        for worker, batch in batches.items():
            calls.in_flight += len(batch[0])
            calls.pool.send(worker, (0, commands.MANY, (number, media_type, *batch)))

    def on_rows(self, number: int, media_type: str, keys: tuple[int, ...], data: Any, episodes: int) -> None:
        """Handle finished steps in the request `number`. `episodes` is the number of episodes that ended."""
        calls = self._calls
        if not isinstance(data, bytes):  # the worker's interpreter does not have msgspec
            try:
                data = encoder(media_type)(data)
            except (ValueError, TypeError, OverflowError) as err:
                if len(keys) == 1:
                    calls.on_reply(keys[0], commands.ROW, commands.BROKE, commands.broken(err))
                else:
                    for key, row in zip(keys, data, strict=True):
                        self.on_rows(number, media_type, (key,), [row], int(row[3] or row[4]))
                return
        now = monotonic()
        find = calls.sessions.by_key.get
        rows = StepRows(keys, data, media_type)
        dropped: set[int] = set()
        for key in keys:
            session = find(key)
            if session is None or session.waiters is None:  # the call was abandoned after its timeout
                dropped.add(key)
                continue
            waiters, session.waiters = session.waiters, None
            calls.in_flight -= 1
            session.expires_at = now + session.lease
            if session.end_cause is not None:  # the session has ended, and its waiters have received the cause
                dropped.add(key)
                calls.sessions.forget_key(key)
                calls.pool.drop(session.worker, key)
                continue
            session.last_response = rows
            if len(waiters) > 1:  # the first waiter belongs to this request
                session.last_response = single = rows.extract(key, session.seq - 1)
                for respond in waiters[1:]:
                    respond(single)
        calls.stats.episodes += episodes
        response = self._responses.get(number)
        if response is not None:
            calls.stats.record_call("step", now - response.started, len(keys))
            response.add_rows(rows.without(dropped) if dropped else rows.data, len(keys) - len(dropped))


def _decode(media_type: str) -> Callable[[bytes], Any]:
    return msgspec.msgpack.decode if media_type == MSGPACK else msgspec.json.decode


def _array_header(size: int) -> bytes:
    """Return the msgpack header for an array with `size` items."""
    if size < 16:
        return bytes([0x90 | size])
    return b"\xdc" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xdd" + size.to_bytes(4, "big")


def _without_header(array: bytes) -> bytes:
    return array[{0xDC: 3, 0xDD: 5}.get(array[0], 1) :]


_ROWS: Final = msgspec.msgpack.encode("rows")
_ERRORS: Final = msgspec.msgpack.encode("errors")

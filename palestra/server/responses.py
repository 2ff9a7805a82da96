"""Build error responses, and add sequence numbers, media type conversion and timeouts to responses."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from palestra.remote.protocol import MSGPACK, Fault, Response, encoder, fault, status_of
from palestra.server.sessions import Cause, Respond, Result, Session

_CAUSES: Final[dict[str, str]] = {
    "closed": "it was closed",
    "expired": "it was not used for the duration of its lease; request a longer `lease` when creating it",
    "deadline": "a call exceeded the server's timeout, and the environment was abandoned",
    "crashed": "its worker process crashed during a call in this session",
    "worker": "its worker process crashed; to continue, create a new session and replay the seed and actions",
    "stopped": "the server stopped",
}


def session_gone(cause: Cause, detail: str = "") -> Fault:
    message = f"the session has ended: {_CAUSES[cause]}" + (f" ({detail})" if detail else "")
    boundary = "" if cause == "closed" else "env"
    return fault("session_gone", message, cause=cause, boundary=boundary, kind="SessionLost")


def unknown_session() -> Fault:
    return fault("unknown_session", "no such session, or the session belongs to another client", kind="SessionLost")


def id_reused() -> Fault:
    return fault("id_reused", "the previous call had the same id but different content; use a new id for every request")


def busy() -> Fault:
    return fault("session_busy", "another call in this session is running; send one call at a time", retry_after=0.05)


def draining() -> Fault:
    return fault("draining", "this server is shutting down and accepts no new sessions", retry_after=5.0)


def sessions_full(limit: int) -> Fault:
    return fault("capacity", f"all {limit} sessions are in use", retry_after=5.0)


def quota_reached(limit: int) -> Fault:
    return fault("quota", f"this client already has {limit} sessions, the maximum per client", retry_after=5.0)


def late(seconds: float) -> Fault:
    return fault(
        "not_yet", f"the call took more than {seconds:g} s; retry with the same id and sequence number", retry_after=0.1
    )


def with_seq(body: bytes, seq: int, media_type: str) -> bytes:
    """Insert the sequence number as the first field in the encoded object `body`."""
    if media_type == MSGPACK:
        return bytes([body[0] + 1]) + _SEQ_KEY + msgspec.msgpack.encode(seq) + body[1:]
    return b'{"seq":%d,%b' % (seq, body[1:])


def with_fault_seq(result: Result, seq: int) -> Result:
    """Add the sequence number to an error. Encoded results already contain it."""
    return msgspec.structs.replace(result, seq=seq) if isinstance(result, Fault) else result


_SEQ_KEY: Final = msgspec.msgpack.encode("seq")


def transcoded(session: Session, respond: Respond, source: str, target: str) -> Respond:
    """Wrap `respond` to convert a response from the media type `source` to the media type `target`.

    The session stores the converted response, so that many retries are not converted one by one.
    """
    decode = msgspec.msgpack.decode if source == MSGPACK else msgspec.json.decode

    def convert(result: Result) -> None:
        if isinstance(result, bytes):
            if session.transcoded is None or session.transcoded[0] is not result:
                session.transcoded = (result, encoder(target)(decode(result)))
            result = session.transcoded[1]
        respond(result)

    return convert


def with_timeout(respond: Respond, seconds: float) -> Respond:
    """Wrap `respond` to send `not_yet` after `seconds`. A later result is sent only in response to a retry."""
    loop = asyncio.get_running_loop()
    pending = True

    def respond_once(result: Result) -> None:
        nonlocal pending
        if pending:
            pending = False
            timer.cancel()
            respond(result)

    timer = loop.call_later(seconds, respond_once, late(seconds))
    return respond_once


def envelope(request_id: str, result: Result) -> Response:
    """Combine a result with the id of its request, for responses on the WebSocket or in a batch."""
    if isinstance(result, Fault):
        return Response(id=request_id, status=status_of(result), error=result)
    return Response(id=request_id, result=msgspec.Raw(result))

"""What the desk says: ends and refusals in words, results with their numbers, in which form and how late."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from palestra.remote.protocol import MSGPACK, Fault, Response, encoder, fault, status_of
from palestra.server.sessions import Cause, Result, Tell

_ENDINGS: Final[dict[str, str]] = {
    "closed": "it was closed",
    "expired": "nobody used it for as long as its lease lasts; a longer lease is asked for at its creation",
    "deadline": "a call took longer than this server allows, and its environment was given up",
    "crashed": "its worker process died while this session's call was under way",
    "worker": "its worker process died; create it anew, with the same seed and actions where it should go on",
    "stopped": "the server stopped",
}


def gone(cause: Cause, how: str = "") -> Fault:
    words = f"the session has ended: {_ENDINGS[cause]}" + (f" ({how})" if how else "")
    boundary = "" if cause == "closed" else "env"
    return fault("session_gone", words, cause=cause, boundary=boundary, kind="SessionLost")


def unknown_session() -> Fault:
    return fault("unknown_session", "there is no such session, or it is another client's", kind="SessionLost")


def id_reused() -> Fault:
    return fault(
        "id_reused", "the call before had this id and asked for something else; use a new id for every request"
    )


def busy() -> Fault:
    return fault("session_busy", "another call of this session is under way; one at a time", retry_after=0.05)


def numbered(body: bytes, seq: int, write: str) -> bytes:
    """The object that `body` is, with its call's number added in front."""
    if write == MSGPACK:
        return bytes([body[0] + 1]) + _SEQ_KEY + msgspec.msgpack.encode(seq) + body[1:]
    return b'{"seq":%d,%b' % (seq, body[1:])


def counted(result: Result, seq: int) -> Result:
    """An error with the number of its call; results have it already."""
    return msgspec.structs.replace(result, seq=seq) if isinstance(result, Fault) else result


_SEQ_KEY: Final = msgspec.msgpack.encode("seq")


def rewritten(tell: Tell, then: str, now: str) -> Tell:
    """An answer that was written for JSON, for a retry that speaks msgpack, or the other way round."""
    read = msgspec.msgpack.decode if then == MSGPACK else msgspec.json.decode

    def told(result: Result) -> None:
        tell(result if isinstance(result, Fault) else encoder(now)(read(result)))

    return told


def patient(tell: Tell, seconds: float) -> Tell:
    """`tell`, at the latest after so long; what comes later is for whoever asks again."""
    loop = asyncio.get_running_loop()
    open_ = True

    def told(result: Result) -> None:
        nonlocal open_
        if open_:
            open_ = False
            timer.cancel()
            tell(result)

    timer = loop.call_later(seconds, told, late(seconds))
    return told


def late(seconds: float) -> Fault:
    return fault("not_yet", f"not done within {seconds:g} s; ask again with the same id and number", retry_after=0.1)


def answered(name: str, result: Result) -> Response:
    """An answer of the desk's among others."""
    if isinstance(result, Fault):
        return Response(id=name, status=status_of(result), error=result)
    return Response(id=name, result=msgspec.Raw(result))

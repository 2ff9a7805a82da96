"""Requests, responses and error codes in the environment server's protocol, version 1.

HTTP requests, WebSocket messages and batches use the same types. msgspec encodes them as JSON or MessagePack, validates
them during decoding, and generates their schema. This module does not import the server.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

VERSION: Final = 1
PREFIX: Final = f"/v{VERSION}"
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

Id: TypeAlias = Annotated[str, Meta(max_length=128, description="Unique id of the request, chosen by the client.")]
Session: TypeAlias = Annotated[str, Meta(max_length=128)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Seq: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

_SEQ = Meta(
    description="Sequence number of this call in its session, starting from 0. Resets, steps and forks are counted. A "
    "request with the number and id of the previous call is a retry and receives the same response. Otherwise, "
    "only the next number is accepted."
)
_TIMEOUT = Meta(
    description="Seconds after which an unfinished call returns the error `not_yet`. A retry later returns its result."
)


class BaseRequest(Struct, forbid_unknown_fields=True, kw_only=True, tag_field="op"):
    """Fields common to all requests."""

    id: Id = ""
    timeout: Annotated[Seconds, _TIMEOUT] | None = None


class Create(BaseRequest, kw_only=True, tag="create"):
    """Open a session with a new environment."""

    env: Annotated[str, Meta(min_length=1, max_length=256)]
    kwargs: dict[str, Any] = {}
    lease: Annotated[Seconds, Meta(description="Seconds after which an unused session ends.")] | None = None
    autoreset: Annotated[str, Meta(pattern="^(same_step|next_step|disabled)$")] | None = None
    root: Annotated[Seed, Meta(description="Seed from which all episodes are derived, for `autoreset`.")] | None = None
    episode: Annotated[
        int, Meta(ge=-1, le=1 << 53, description="Number of the last episode that was started, for `autoreset`.")
    ] = -1


class SessionRequest(BaseRequest, kw_only=True):
    """Request to one session. Over HTTP, the path contains the session's name."""

    session: Session = ""


class Reset(SessionRequest, kw_only=True, tag="reset"):
    """Start an episode. If `actions` is set, take these actions and return the result of the last one."""

    seed: Seed | None = None
    options: dict[str, Any] | None = None
    actions: list[str] = []
    seq: Annotated[Seq, _SEQ] | None = None


class Step(SessionRequest, kw_only=True, tag="step"):
    """Take an action."""

    action: str
    seq: Annotated[Seq, _SEQ] | None = None


class Steps(BaseRequest, kw_only=True, tag="steps"):
    """Take one action in each of several sessions.

    Each step has a sequence number and can be retried like a single step. The response contains the results of the
    steps that finish within `timeout`, and the error `not_yet` for the others.
    """

    steps: Annotated[
        list[tuple[Session, Annotated[Seq, _SEQ], str]],
        Meta(min_length=1, max_length=4_096, description="One [session, seq, action] per session."),
    ]


class Fork(SessionRequest, kw_only=True, tag="fork"):
    """Open a new session with an independent copy of the running episode."""

    seq: Annotated[Seq, _SEQ] | None = None


class Render(SessionRequest, kw_only=True, tag="render"):
    """Render the state of the environment for humans."""

    mode: Annotated[str, Meta(pattern="^(text|image)$")] = "text"


class SuggestAction(SessionRequest, kw_only=True, tag="suggest_action"):
    """Return an action from one of the environment's built-in players. With `seed`, only seed the random player."""

    player: Annotated[str, Meta(pattern="^(random|expert|example)$")]
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None


class Status(SessionRequest, kw_only=True, tag="status"):
    """Return the state of a session and renew its lease."""


class Close(SessionRequest, kw_only=True, tag="close"):
    """Close a session. Closing a closed session is not an error."""


SingleRequest: TypeAlias = Create | Reset | Step | Fork | Render | SuggestAction | Status | Close
Request: TypeAlias = SingleRequest | Steps


class Batch(Struct, forbid_unknown_fields=True, kw_only=True):
    """Send several requests in one message. The responses are in the same order."""

    requests: Annotated[list[SingleRequest], Meta(min_length=1, max_length=4_096)]
    timeout: Annotated[Seconds, _TIMEOUT] | None = None


class Fault(Struct, kw_only=True, omit_defaults=True):
    """Error that a request returns."""

    code: str
    message: str
    boundary: str = ""  # component that failed, such as "env" or "tool"
    cause: str = ""  # reason for the failure or for the end of the session, such as "raised", "deadline" or "expired"
    kind: str = ""  # class name of the exception
    retry_after: float | UnsetType = UNSET  # seconds
    expected: int | UnsetType = UNSET  # next sequence number that the server accepts
    seq: int | UnsetType = UNSET  # sequence number of the failed call; a retry with this number returns the same error
    trace: str = ""


# Fields of a step result. A row in the response to `Steps` contains the index of the step and then these fields.
OUTCOME: Final = ("observation", "reward", "terminated", "truncated", "info", "episode")


class Response(Struct, kw_only=True, omit_defaults=True):
    """Response on the WebSocket or in a batch, which contains either a result or an error."""

    id: str = ""
    status: int = 200
    result: msgspec.Raw | UnsetType = UNSET
    error: Fault | UnsetType = UNSET


# Error code -> (HTTP status, meaning).
CODES: Final[dict[str, tuple[int, str]]] = {
    "bad_request": (400, "the request is malformed, or a field has an invalid value"),
    "bad_value": (422, "the environment does not accept a keyword argument, an option or a value"),
    "unauthorized": (401, "the `Authorization: Bearer TOKEN` header must contain a valid token"),
    "not_found": (404, "there is no such path"),
    "unknown_env": (404, "the server does not provide this environment"),
    "unknown_session": (404, "there is no such session"),
    "not_allowed": (405, "the path does not support this HTTP method"),
    "too_slow": (408, "the client took too long to send the request"),
    "out_of_order": (409, "the sequence number is wrong; `expected` contains the next sequence number"),
    "id_reused": (409, "another call with different content had the same id; use a new id for every call"),
    "session_busy": (409, "another call in this session is running"),
    "reset_needed": (409, "no episode has been started; call reset"),
    "episode_over": (409, "the episode is over; call reset to start the next one"),
    "session_gone": (410, "the session has ended; `cause` contains the reason"),
    "too_large": (413, "the request is too large"),
    "unsupported_media": (415, "the body must be application/json or application/msgpack"),
    "wrong_host": (421, "the server does not accept this host name"),
    "rate_limited": (429, "too many requests; wait `retry_after` seconds"),
    "quota": (429, "this client has reached its maximum number of sessions; close one, or wait"),
    "env_failed": (502, "the environment failed, see `boundary` and `kind`; call reset to start a new episode"),
    "capacity": (503, "the server is at capacity; wait `retry_after` seconds, then retry with the same id"),
    "draining": (503, "the server is shutting down and accepts no new sessions"),
    "unavailable": (503, "no worker is available; wait `retry_after` seconds"),
    "not_yet": (504, "the call is still running; retry with the same id and sequence number to get its result"),
}

encode_json = msgspec.json.Encoder().encode
encode_msgpack = msgspec.msgpack.Encoder().encode


def encoder(media_type: str) -> Any:
    """Return a function that encodes values as `media_type`."""
    return encode_msgpack if media_type == MSGPACK else encode_json


def decoder(media_type: str, target: Any) -> Any:
    """Return a function that decodes `media_type` into objects of type `target`."""
    return (msgspec.msgpack if media_type == MSGPACK else msgspec.json).Decoder(target).decode


def fingerprint(request: Create | Reset | Step | Fork) -> int:
    """Return a hash of a request's content, to distinguish a retry from a different request with the same id."""
    match request:
        case Step():
            return hash(request.action)
        case Reset():
            return hash((Reset, repr((request.seed, request.options, request.actions))))
        case Create():
            content = (request.env, request.kwargs, request.lease, request.autoreset, request.root, request.episode)
            return hash((Create, repr(content)))
    return hash(Fork)


def fault(code: str, message: str, **details: Any) -> Fault:
    """Return an error with a code from CODES."""
    return Fault(code=code, message=message, **details)


def status_of(result: bytes | Fault) -> int:
    """Return the HTTP status for a result or error."""
    return CODES[result.code][0] if isinstance(result, Fault) else 200

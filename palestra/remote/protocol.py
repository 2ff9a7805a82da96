"""Wire protocol of the environment server, version 1: requests, responses and error codes.

HTTP requests, WebSocket messages and batches use the same types. msgspec encodes them as JSON or MessagePack, validates
them during decoding, and derives their schema. This module does not depend on the server.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

VERSION: Final = 1
PREFIX: Final = f"/v{VERSION}"
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

Id: TypeAlias = Annotated[str, Meta(max_length=128, description="Chosen by the client, unique per request.")]
Session: TypeAlias = Annotated[str, Meta(max_length=128)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Seq: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

_SEQ = Meta(
    description="Sequence number of this call in its session, from 0; resets, steps and forks are counted. A request "
    "with the number and id of an earlier one is a retry and gets the earlier response. Any number other than the next "
    "is refused."
)
_TIMEOUT = Meta(
    description="Seconds the client waits. After that the response is `not_yet`; a retry returns the result once done."
)


class BaseRequest(Struct, forbid_unknown_fields=True, kw_only=True, tag_field="op"):
    """Fields common to all requests."""

    id: Id = ""
    timeout: Annotated[Seconds, _TIMEOUT] | None = None


class Create(BaseRequest, kw_only=True, tag="create"):
    """Open a session with a new environment."""

    env: Annotated[str, Meta(min_length=1, max_length=256)]
    kwargs: dict[str, Any] = {}
    lease: Annotated[Seconds, Meta(description="The session is closed after this many seconds without use.")] | None = (
        None
    )
    autoreset: Annotated[str, Meta(pattern="^(same_step|next_step|disabled)$")] | None = None
    root: Annotated[Seed, Meta(description="With `autoreset`: seed from which all episodes are derived.")] | None = None
    episode: Annotated[
        int, Meta(ge=-1, le=1 << 53, description="With `autoreset`: number of the last episode that was started.")
    ] = -1


class SessionRequest(BaseRequest, kw_only=True):
    """Request that concerns one session. Over HTTP, the path contains the session."""

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
    """Take one action in each of many sessions, for the step of a whole vector.

    Each step is numbered and retried like a single step. The response contains the results of the steps that finish
    within `timeout` and the error `not_yet` for the others.
    """

    steps: Annotated[
        list[tuple[Session, Annotated[Seq, _SEQ], str]],
        Meta(min_length=1, max_length=4_096, description="One [session, seq, action] per step."),
    ]


class Fork(SessionRequest, kw_only=True, tag="fork"):
    """Open another session with an independent copy of the running episode."""

    seq: Annotated[Seq, _SEQ] | None = None


class Render(SessionRequest, kw_only=True, tag="render"):
    """Return a human-readable view of the state."""

    mode: Annotated[str, Meta(pattern="^(text|image)$")] = "text"


class SuggestAction(SessionRequest, kw_only=True, tag="suggest_action"):
    """Return an action of one of the environment's players. With `seed`, only seed the random player."""

    player: Annotated[str, Meta(pattern="^(random|expert|example)$")]
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None


class Status(SessionRequest, kw_only=True, tag="status"):
    """Return the state of a session and renew its lease."""


class Close(SessionRequest, kw_only=True, tag="close"):
    """Close a session. Closing a closed session is not an error."""


SingleRequest: TypeAlias = Create | Reset | Step | Fork | Render | SuggestAction | Status | Close
Request: TypeAlias = SingleRequest | Steps


class Batch(Struct, forbid_unknown_fields=True, kw_only=True):
    """Several requests in one message; the responses come in the same order."""

    requests: Annotated[list[SingleRequest], Meta(min_length=1, max_length=4_096)]
    timeout: Annotated[Seconds, _TIMEOUT] | None = None


class Fault(Struct, kw_only=True, omit_defaults=True):
    """Error of a request."""

    code: str
    message: str
    boundary: str = ""  # component in which an infrastructure failure happened: "env", "tool" ...
    cause: str = ""  # why a session was lost: "raised", "deadline", "memory", "crashed", "worker", "expired", "closed"
    kind: str = ""  # class name of the exception
    retry_after: float | UnsetType = UNSET  # seconds
    expected: int | UnsetType = UNSET  # the sequence number that the server expects next
    seq: int | UnsetType = UNSET  # sequence number of the call, if it was assigned: a retry then returns the same error
    trace: str = ""


# Fields of a step's result. A row in the response to `Steps` holds the index of the step, then these fields in order.
OUTCOME: Final = ("observation", "reward", "terminated", "truncated", "info", "episode")


class Response(Struct, kw_only=True, omit_defaults=True):
    """One response on the WebSocket or in a batch: a result or an error."""

    id: str = ""
    status: int = 200
    result: msgspec.Raw | UnsetType = UNSET
    error: Fault | UnsetType = UNSET


# Every error code with its HTTP status and meaning.
CODES: Final[dict[str, tuple[int, str]]] = {
    "bad_request": (400, "the request is malformed, or a field has an invalid value"),
    "bad_value": (422, "the environment rejects a keyword, an option or a value"),
    "unauthorized": (401, "a token is required: Authorization: Bearer ..."),
    "not_found": (404, "there is no resource at this path"),
    "unknown_env": (404, "this server does not provide that environment"),
    "unknown_session": (404, "there is no such session"),
    "not_allowed": (405, "the path does not support this HTTP method"),
    "too_slow": (408, "the request did not arrive in time"),
    "out_of_order": (409, "the sequence number is not the next one, which is `expected`"),
    "id_reused": (409, "a different call had this id; ids are unique, and a retry repeats the call unchanged"),
    "session_busy": (409, "another call of this session is in progress"),
    "reset_needed": (409, "no episode has been started; call reset"),
    "episode_over": (409, "the episode is over; call reset to start the next one"),
    "session_gone": (410, "the session has ended; `cause` gives the reason"),
    "too_large": (413, "the request is larger than this server accepts"),
    "unsupported_media": (415, "the body must be application/json or application/msgpack"),
    "wrong_host": (421, "this server does not accept that host name"),
    "rate_limited": (429, "too many requests; wait `retry_after` seconds"),
    "quota": (429, "this client has reached its maximum number of sessions; close one, or wait"),
    "env_failed": (502, "the environment failed; see `boundary` and `kind`. Reset starts a new episode"),
    "capacity": (503, "the server is at capacity; wait `retry_after` seconds"),
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
    """Return a function that decodes bytes of `media_type` into the type `target`."""
    return (msgspec.msgpack if media_type == MSGPACK else msgspec.json).Decoder(target).decode


def fingerprint(request: Create | Reset | Step | Fork) -> int:
    """Return a hash of the content of a request, to distinguish a retry from another request with the same id."""
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
    """Return the HTTP status of a result or error."""
    return CODES[result.code][0] if isinstance(result, Fault) else 200

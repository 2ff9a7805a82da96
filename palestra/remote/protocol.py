"""The wire, version 1: what a client may ask, what it is answered, and every code an error can carry.

One set of records serves HTTP, the socket and batches; msgspec reads and writes them as JSON or msgpack, checks them
while it reads, and tells their schema. Nothing here knows how a server works.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

VERSION: Final = 1
PREFIX: Final = f"/v{VERSION}"
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

Id: TypeAlias = Annotated[str, Meta(max_length=128, description="Chosen by the client, new for every request.")]
Session: TypeAlias = Annotated[str, Meta(max_length=128)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Seq: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

_SEQ = Meta(
    description="The number of this call in its session, from 0: resets, steps and forks count. The same number with "
    "the same id is a retry, and is answered with what came of the first; any other number but the next is refused."
)
_TIMEOUT = Meta(
    description="Seconds the caller waits. Past them the answer is `not_yet`, and a retry gets what has come of it."
)


class Ask(Struct, forbid_unknown_fields=True, kw_only=True, tag_field="op"):
    """What every request has."""

    id: Id = ""
    timeout: Annotated[Seconds, _TIMEOUT] | None = None


class Create(Ask, kw_only=True, tag="create"):
    """Open a session: an environment of its own."""

    env: Annotated[str, Meta(min_length=1, max_length=256)]
    kwargs: dict[str, Any] = {}
    lease: Annotated[Seconds, Meta(description="Seconds without use after which the session ends.")] | None = None
    autoreset: Annotated[str, Meta(pattern="^(same_step|next_step|disabled)$")] | None = None
    root: Annotated[Seed, Meta(description="With `autoreset`: the seed from which all episodes follow.")] | None = None
    episode: Annotated[int, Meta(ge=-1, le=1 << 53, description="With `autoreset`: the last one that began.")] = -1


class Sessional(Ask, kw_only=True):
    """A request about one session; over HTTP the path names it."""

    session: Session = ""


class Reset(Sessional, kw_only=True, tag="reset"):
    """Begin an episode; with `actions`, play them at once and answer what the last one led to."""

    seed: Seed | None = None
    options: dict[str, Any] | None = None
    actions: list[str] = []
    seq: Annotated[Seq, _SEQ] | None = None


class Step(Sessional, kw_only=True, tag="step"):
    """Take an action."""

    action: str
    seq: Annotated[Seq, _SEQ] | None = None


class Steps(Ask, kw_only=True, tag="steps"):
    """Take an action in each of many sessions, a whole vector's step; each is numbered and retried as one by itself.

    What is not done within `timeout` is answered `not_yet`, the others as they went.
    """

    steps: Annotated[
        list[tuple[Session, Annotated[Seq, _SEQ], str]],
        Meta(min_length=1, max_length=4_096, description="[session, seq, action] of each."),
    ]


class Fork(Sessional, kw_only=True, tag="fork"):
    """Open another session with an independent copy of the running episode."""

    seq: Annotated[Seq, _SEQ] | None = None


class Render(Sessional, kw_only=True, tag="render"):
    """The state as people look at it."""

    mode: Annotated[str, Meta(pattern="^(text|image)$")] = "text"


class Advice(Sessional, kw_only=True, tag="advice"):
    """An action of one of the environment's own players; `seed` seeds the random one first."""

    player: Annotated[str, Meta(pattern="^(random|expert|example)$")]
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None


class Look(Sessional, kw_only=True, tag="look"):
    """How a session stands; renews its lease."""


class Close(Sessional, kw_only=True, tag="close"):
    """End a session. Closing a closed one is no error."""


Single: TypeAlias = Create | Reset | Step | Fork | Render | Advice | Look | Close
Request: TypeAlias = Single | Steps


class Batch(Struct, forbid_unknown_fields=True, kw_only=True):
    """Several requests at once; the answers come in their order."""

    requests: Annotated[list[Single], Meta(min_length=1, max_length=4_096)]
    timeout: Annotated[Seconds, _TIMEOUT] | None = None


class Fault(Struct, kw_only=True, omit_defaults=True):
    """Why a request was not fulfilled."""

    code: str
    message: str
    boundary: str = ""  # of an infrastructure failure: "env", "tool" ...
    cause: str = ""  # of a lost session: "raised", "deadline", "memory", "crashed", "worker", "expired", "closed"
    kind: str = ""  # the name of the exception
    retry_after: float | UnsetType = UNSET  # seconds
    expected: int | UnsetType = UNSET  # the sequence number that is next
    seq: int | UnsetType = UNSET  # of the call, where it was counted: a retry is answered the same
    trace: str = ""


# What a step leads to, in the order of a row of `Steps`, where its index stands before them.
OUTCOME: Final = ("observation", "reward", "terminated", "truncated", "info", "episode")


class Answer(Struct, kw_only=True, omit_defaults=True):
    """One answer on the socket or in a batch: a result or an error."""

    id: str = ""
    status: int = 200
    result: msgspec.Raw | UnsetType = UNSET
    error: Fault | UnsetType = UNSET


# code -> (HTTP status, what it means). Nothing else is ever answered.
CODES: Final[dict[str, tuple[int, str]]] = {
    "bad_request": (400, "the request cannot be read, or a field has a wrong value"),
    "bad_value": (422, "the environment refuses a keyword, an option or a value"),
    "unauthorized": (401, "a token is needed: Authorization: Bearer ..."),
    "not_found": (404, "there is nothing at that address"),
    "unknown_env": (404, "this server does not serve that environment"),
    "unknown_session": (404, "there is no such session"),
    "not_allowed": (405, "the address takes another method"),
    "too_slow": (408, "the request did not arrive in time"),
    "out_of_order": (409, "the sequence number is not the next one; `expected` is"),
    "id_reused": (409, "another call had that id; every request has its own, and a retry asks the same"),
    "session_busy": (409, "another call of this session is under way"),
    "reset_needed": (409, "no episode has begun"),
    "episode_over": (409, "the episode is over; reset begins the next"),
    "session_gone": (410, "the session has ended; `cause` says how"),
    "too_large": (413, "the request is larger than this server takes"),
    "unsupported_media": (415, "a body is application/json or application/msgpack"),
    "wrong_host": (421, "the server is not reached under that name"),
    "rate_limited": (429, "too many requests; wait `retry_after` seconds"),
    "quota": (429, "this client has as many sessions as it may; close one, or wait"),
    "env_failed": (502, "the environment broke; `boundary` and `kind` say where and how. A reset begins afresh"),
    "capacity": (503, "the server is full; wait `retry_after` seconds"),
    "draining": (503, "the server is about to stop and takes no new sessions"),
    "unavailable": (503, "no worker can be started; wait `retry_after` seconds"),
    "not_yet": (504, "it is still being worked on; retry with the same id and number to get the answer"),
}

encode_json = msgspec.json.Encoder().encode
encode_msgpack = msgspec.msgpack.Encoder().encode


def encoder(kind: str) -> Any:
    """What writes values as `kind`."""
    return encode_msgpack if kind == MSGPACK else encode_json


def decoder(kind: str, wanted: Any) -> Any:
    """What reads `wanted` from bytes of `kind`."""
    return (msgspec.msgpack if kind == MSGPACK else msgspec.json).Decoder(wanted).decode


def gist(ask: Create | Reset | Step | Fork) -> int:
    """What is asked, by which a retry is told from another request with the same id."""
    match ask:
        case Step():
            return hash(ask.action)
        case Reset():
            return hash((Reset, repr((ask.seed, ask.options, ask.actions))))
        case Create():
            return hash((Create, repr((ask.env, ask.kwargs, ask.lease, ask.autoreset, ask.root, ask.episode))))
    return hash(Fork)


def fault(code: str, message: str, **more: Any) -> Fault:
    """An error with one of CODES."""
    return Fault(code=code, message=message, **more)


def status_of(result: bytes | Fault) -> int:
    """The HTTP status that goes with an answer."""
    return CODES[result.code][0] if isinstance(result, Fault) else 200

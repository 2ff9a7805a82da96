"""Session for a client that uses another project's protocol.

Each AgentGym environment number, OpenEnv episode or connection, and MCP session corresponds to one ProtocolSession,
which opens a dispatcher session on demand. Leases, quotas, capacity limits, timeouts and crashes are handled by
the dispatcher, as in the native protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from palestra.remote.protocol import (
    JSON,
    Create,
    Fault,
    Fork,
    Render,
    Request,
    Reset,
    Seconds,
    Status,
    Step,
    fault,
    status_of,
)
from palestra.server.dispatcher import Dispatcher
from palestra.server.request import HttpRequest, RequestError, error_headers
from palestra.server.sessions import Cause, Result

MAX_ENDED = 20_000  # maximum number of ended sessions whose cause is stored
_decode_any = msgspec.json.Decoder().decode


class StepResult(Struct, kw_only=True):
    """Result of a reset or a step."""

    seq: int
    observation: Any
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """Text of the observation, with `[image]` in place of each image."""
        if isinstance(self.observation, str):
            return self.observation
        return "".join(part["text"] if part["type"] == "text" else "[image]" for part in self.observation)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


_decode_step = msgspec.json.Decoder(StepResult).decode


class ProtocolSession:
    """Opens a dispatcher session on demand and stores the latest result. Concurrent calls are refused.

    `on_end` is called with the cause if the session ends for any reason other than a call to `release` or `close`.
    """

    def __init__(
        self, dispatcher: Dispatcher, owner: str, *, on_end: Callable[[Cause | None], None] | None = None
    ) -> None:
        self.dispatcher = dispatcher
        self.owner = owner
        self.env = ""
        self.session = ""  # name of the dispatcher's session; "" if none is open
        self.steps = 0  # number of steps in the running episode
        self.total_reward = 0.0  # sum of the rewards in the running episode
        self.first: StepResult | None = None  # result of the last reset
        self.last: StepResult | None = None
        self.last_action = ""
        self._on_end = on_end
        self._busy = False
        self._closed = False

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Refuse other calls inside the `with` block, because the underlying session may change."""
        self._check_idle()
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _check_idle(self) -> None:
        if self._busy:
            raise RequestError(fault("session_busy", "another call in this session is running; send one at a time"))

    async def request(self, request: Request) -> bytes:
        """Send a request to the dispatcher; raise RequestError if it fails."""
        return result_or_raise(await self.dispatcher.request(request, self.owner))

    @property
    def is_open(self) -> bool:
        return self.session != "" and self.dispatcher.sessions.find(self.session, self.owner) is not None

    async def ensure_open(self, env: str, kwargs: dict[str, Any] | None = None) -> None:
        """Open a session for `env` if none is open. Raise RequestError once if the previous session was lost."""
        if self.session and not self.is_open:
            lost, self.session = self.session, ""
            await self.request(Status(session=lost))  # raises an error with the reason why the session ended
        if self.session and self.env == env:
            return
        self.release()
        self.env = env
        self.first = self.last = None
        # There must be no await between release and submit, because another client could take the freed capacity.
        response: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        create = Create(env=env, kwargs=kwargs or {})
        self.dispatcher.submit(create, self.owner, JSON, partial(self._on_created, response))
        result_or_raise(await response)

    def _on_created(self, response: asyncio.Future[Result], result: Result) -> None:
        if not isinstance(result, Fault):
            name = _decode_any(result)["session"]
            session = self.dispatcher.sessions.find(name, self.owner)
            if self._closed:
                self.dispatcher.release(name, self.owner)  # the client disconnected while the session was being opened
            elif session is not None:
                self.session = name
                self.dispatcher.sessions.on_end(session, partial(self._on_session_end, name))
        if not response.done():
            response.set_result(result)

    def _on_session_end(self, name: str, cause: Cause | None) -> None:
        if self.session == name and not self._closed and self._on_end is not None:
            self._on_end(cause)

    async def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None, *, request_id: str = ""
    ) -> StepResult:
        """Start an episode. A retry with the same `request_id` returns the same result."""
        request = Reset(session=self.session, seed=seed, options=options or None, id=request_id)
        self.last = self.first = result = _decode_step(await self.request(request))
        self.steps = 0
        self.total_reward = 0.0
        return result

    async def step(self, action: str, *, request_id: str = "", timeout: Seconds | None = None) -> StepResult:
        """Take an action. A retry with the same `request_id` returns the same result."""
        self._check_idle()
        self._check_reset()
        previous = self.last
        request = Step(session=self.session, action=action, id=request_id, timeout=timeout)
        result = _decode_step(await self.request(request))
        if previous is None or result.seq > previous.seq:  # otherwise this is a retry, which was already counted
            self.steps += 1
            self.total_reward += result.reward or 0.0
            self.last, self.last_action = result, action
        return result

    async def render(self) -> str | None:
        """Return a rendering of the state as text, or None if the environment has none."""
        self._check_reset()
        text: str | None = _decode_any(await self.request(Render(session=self.session)))["render"]
        return text

    def _check_reset(self) -> None:
        if not self.session:
            raise RequestError(fault("reset_needed", "no episode is running; call reset first"))

    async def peek(self, action: str) -> str:
        """Take `action` in a temporary fork and return the observation."""
        fork = _decode_any(await self.request(Fork(session=self.session)))["session"]
        try:
            return _decode_step(await self.request(Step(session=fork, action=action))).text
        finally:
            self.dispatcher.release(fork, self.owner)

    def release(self) -> bool:
        """End the underlying session, and return whether one was open."""
        was_open = self.is_open
        name, self.session = self.session, ""
        if was_open:
            self.dispatcher.release(name, self.owner)
        return was_open

    def close(self) -> bool:
        """End the underlying session and prevent this object from opening another one."""
        self._closed = True
        return self.release()


def result_or_raise(result: Result) -> bytes:
    """Return `result`, or raise RequestError if it is an error."""
    if isinstance(result, Fault):
        raise RequestError(result)
    return result


async def read_body(request: HttpRequest, body_type: Any) -> Any:
    """Decode the JSON body as `body_type`. An empty body is treated as an empty object."""
    body = await request.body()
    if body and request.content_type != JSON:
        raise RequestError(fault("unsupported_media", f"Content-Type must be {JSON}"))
    return decode_json(body or b"{}", body_type)


def decode_json(body: bytes | str, body_type: Any) -> Any:
    """Decode JSON as `body_type`. Raise RequestError if it is invalid."""
    try:
        return msgspec.json.decode(body, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise RequestError(fault("bad_request", str(err)[:300] or type(err).__name__)) from None


def error_details(error: Fault) -> dict[str, Any]:
    """Return the boundary, cause and kind of an error, without empty values."""
    details = {"boundary": error.boundary, "cause": error.cause, "kind": error.kind}
    return {name: value for name, value in details.items() if value}


async def send_error(request: HttpRequest, error: Fault, body: Any) -> None:
    """Send an error with the native protocol's status and headers and a body in another protocol's format."""
    await request.send(status_of(error), msgspec.json.encode(body), *error_headers(error), content_type=JSON)

"""One client's environment in another protocol: a session at the desk, opened when it is needed, told when it ends.

Whatever a dialect calls it - an env_idx, an episode, a socket - is a seat. Leases, quotas, capacity, deadlines and
crashes are the desk's affair and hold here as they do in the server's own protocol.
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
from palestra.server.dispatcher import Desk
from palestra.server.request import HttpRequest, Refused
from palestra.server.sessions import Cause, Result

REMEMBERED = 20_000  # ended seats whose end can still be told
_read_any = msgspec.json.Decoder().decode


class Played(Struct, kw_only=True):
    """What a reset or a step led to."""

    seq: int
    observation: Any
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The words of the observation; each picture is shown as `[image]`."""
        if isinstance(self.observation, str):
            return self.observation
        return "".join(part["text"] if part["type"] == "text" else "[image]" for part in self.observation)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


_read_played = msgspec.json.Decoder(Played).decode


class Seat:
    """A session that may not be open yet, and what became of it last. One call at a time; a second is refused."""

    def __init__(self, desk: Desk, owner: str, *, ended: Callable[[Cause | None], None] | None = None) -> None:
        self.desk = desk
        self.owner = owner
        self.env = ""
        self.session = ""
        self.steps = 0  # of the running episode
        self.total = 0.0  # what they earned
        self.last: Played | None = None
        self.first: Played | None = None  # what the running episode began with
        self._ended = ended  # told when the session ends and nobody here asked for it
        self._busy = False
        self._closed = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """While its session may change; steps of one session the desk keeps apart itself."""
        self._check_free()
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _check_free(self) -> None:
        if self._busy:
            raise Refused(fault("session_busy", "another call of this one is under way; one at a time"))

    async def ask(self, ask: Request) -> bytes:
        """Raises Refused where the desk does."""
        return good(await self.desk.ask(ask, self.owner))

    @property
    def open(self) -> bool:
        return self.session != "" and self.desk.sessions.find(self.session, self.owner) is not None

    async def sit(self, env: str, kwargs: dict[str, Any] | None = None) -> None:
        """Have a session of `env`: the one there is, or a new one instead. One that was lost is told as lost, once."""
        if self.session and not self.open:
            lost, self.session = self.session, ""
            await self.ask(Status(session=lost))  # raises
        if self.session and self.env == env:
            return
        self.leave()
        self.env = env
        self.first = self.last = None
        # With no pause between: the place that was left is ours.
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.desk.submit(Create(env=env, kwargs=kwargs or {}), self.owner, JSON, partial(self._opened, answer))
        good(await answer)

    def _opened(self, answer: asyncio.Future[Result], result: Result) -> None:
        if not isinstance(result, Fault):
            name = _read_any(result)["session"]
            session = self.desk.sessions.find(name, self.owner)
            if self._closed:
                self.desk.hang_up(name, self.owner)  # the client left while it was being made
            elif session is not None:
                self.session = name
                self.desk.sessions.watch(session, partial(self._over, name))
        if not answer.done():
            answer.set_result(result)

    def _over(self, name: str, cause: Cause | None) -> None:
        if self.session == name and not self._closed and self._ended is not None:
            self._ended(cause)

    async def reset(self, seed: int | None = None, options: dict[str, Any] | None = None, *, name: str = "") -> Played:
        """Begin an episode; `name` is the id of the request, for retries."""
        ask = Reset(session=self.session, seed=seed, options=options or None, id=name)
        self.last = self.first = played = _read_played(await self.ask(ask))
        self.steps = 0
        self.total = 0.0
        return played

    async def step(self, action: str, *, name: str = "", timeout: Seconds | None = None) -> Played:
        """Take an action."""
        self._check_free()
        if not self.session:
            raise Refused(fault("reset_needed", "no episode has begun; reset first"))
        before = self.last
        played = _read_played(await self.ask(Step(session=self.session, action=action, id=name, timeout=timeout)))
        if before is None or played.seq > before.seq:  # not the answer to a retry, which was counted before
            self.steps += 1
            self.total += played.reward or 0.0
            self.last = played
        return played

    async def render(self) -> str | None:
        """The state as people look at it, in words."""
        if not self.session:
            raise Refused(fault("reset_needed", "no episode has begun; reset first"))
        shown: str | None = _read_any(await self.ask(Render(session=self.session)))["render"]
        return shown

    async def aside(self, action: str) -> str:
        """What `action` would lead to: taken in a copy of the episode, which is then dropped."""
        copy = _read_any(await self.ask(Fork(session=self.session)))["session"]
        try:
            return _read_played(await self.ask(Step(session=copy, action=action))).text
        finally:
            self.desk.hang_up(copy, self.owner)

    def leave(self) -> bool:
        """End the session; was there one?"""
        name, self.session = self.session, ""
        found = name != "" and self.desk.sessions.find(name, self.owner) is not None
        if found:
            self.desk.hang_up(name, self.owner)
        return found

    def close(self) -> bool:
        """`leave`, for good."""
        self._closed = True
        return self.leave()


def good(result: Result) -> bytes:
    """A result, or Refused."""
    if isinstance(result, Fault):
        raise Refused(result)
    return result


async def read_body(request: HttpRequest, wanted: Any) -> Any:
    """The body as `wanted`; Refused where it is something else. No body is an empty object."""
    body = await request.body()
    if body and request.kind != JSON:
        raise Refused(fault("unsupported_media", f"send {JSON}, and say so in Content-Type"))
    return read_json(body or b"{}", wanted)


def read_json(body: bytes | str, wanted: Any) -> Any:
    """`body` as `wanted`, or Refused."""
    try:
        return msgspec.json.decode(body, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise Refused(fault("bad_request", str(err)[:300] or type(err).__name__)) from None


def told(found: Fault) -> dict[str, Any]:
    """What else is known of an error, besides its message and code."""
    more = {"boundary": found.boundary, "cause": found.cause, "kind": found.kind}
    return {name: value for name, value in more.items() if value}


async def refuse(request: HttpRequest, found: Fault, body: Any) -> None:
    """An error in a dialect's own words, with the status and headers of ours."""
    headers: list[tuple[bytes, bytes]] = []
    if isinstance(found.retry_after, float):
        headers.append((b"retry-after", b"%d" % max(1, round(found.retry_after))))
    if found.code == "not_allowed":
        headers.append((b"allow", found.message.removeprefix("use ").encode()))
    await request.answer(status_of(found), msgspec.json.encode(body), *headers, kind=JSON)

"""AgentGym's HTTP protocol, one family under a path each: `/agentgym/textcraft/create`, `reset`, `step` and the rest.

AgentGym's own clients run against it unchanged. Its ids are integers; they are checked against whose they are, never
given twice, and forgotten when their session ends.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from palestra.remote.protocol import JSON, Status, fault
from palestra.server.app import App, deny
from palestra.server.auth import Visitor
from palestra.server.dispatcher import Desk
from palestra.server.protocols import agentgym_views as views
from palestra.server.protocols.agentgym_tasks import TASKS, served
from palestra.server.protocols.protocol_session import REMEMBERED, Played, Seat, read_body, refuse, told
from palestra.server.request import HttpRequest, Receive, Refused, Scope, Send
from palestra.server.settings import Settings

Number = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
BY_ENV_IDX = frozenset({"searchqa", "webshop"})  # families that call an environment's number env_idx, not id
BEGUN = frozenset({"searchqa", "textcraft", "webshop"})  # families whose environments have begun when they are made
GAP = 1 << 16  # numbers grow by up to so much, that none can be guessed from another


class Body(Struct, kw_only=True):
    """What any of their requests may say; what else one says is not looked at."""

    id: Number | None = None
    env_idx: Number | None = None
    data_idx: Number = 0
    session_id: Number | None = None
    action: str | None = None
    goal: str | None = None
    commands: str | None = None


class Chair(Seat):
    """One environment of a family."""

    def __init__(self, desk: Desk, owner: str, family: str, number: int, ended: Callable[[object], None]) -> None:
        super().__init__(desk, owner, ended=ended)
        self.family = family
        self.number = number
        self.goal: str | None = None  # of all its episodes, where the client named one

    def current(self) -> tuple[Played, Played]:
        """What the episode began with, and what came of it last."""
        if self.first is None or self.last is None:
            raise Refused(fault("reset_needed", "no episode has begun; reset first"))
        return self.first, self.last


class AgentGym:
    prefix = "/agentgym/"

    def __init__(self, settings: Settings) -> None:
        self._ids = {family: served(settings.envs, family) for family in TASKS}
        self._chairs: dict[int, Chair] = {}
        self._ended: OrderedDict[int, tuple[str, str]] = OrderedDict()  # number -> whose it was, and its session
        self._number = secrets.randbelow(1 << 32)  # another start in every life, lest an old client meets a new env
        self._calls: dict[str, Callable[[Chair, Body, str], Awaitable[Any]]] = {
            "reset": self._reset,
            "step": self._step,
            "close": self._close,
        }

    async def socket(self, app: App, scope: Scope, receive: Receive, send: Send, visitor: Visitor) -> None:  # noqa: ARG002
        await receive()
        await deny(scope, send, fault("not_found", "AgentGym's protocol has no socket"))

    async def close(self) -> None:
        self._chairs.clear()

    async def http(self, app: App, request: HttpRequest) -> None:
        family, _, what = request.path[len(self.prefix) :].partition("/")
        code = "ok"
        try:
            answer = await self._answer(app.desk, request, family, what)
        except Refused as err:
            code = err.fault.code
            await refuse(request, err.fault, {"error": err.fault.message, "code": code, **told(err.fault)})
        else:
            await request.answer(200, msgspec.json.encode(answer), kind=JSON)
        app.desk.stats.requests["agentgym", code] += 1

    async def _answer(self, desk: Desk, request: HttpRequest, family: str, what: str) -> Any:
        if family not in TASKS:
            raise Refused(fault("not_found", f"AgentGym's families here are {', '.join(TASKS)}"))
        ids = self._ids[family]
        if not ids:
            raise Refused(fault("unknown_env", f"this server serves nothing of {TASKS[family][0]}:"))
        owner = request.visitor.owner
        if what == "" and request.method == "GET":
            return f"This is environment {views.NAMES[family]}."
        if what == "create":
            _check_method(request, "POST")
            return await self._create(desk, owner, family, await read_body(request, Body))
        if what == "list_envs":
            _check_method(request, "GET")
            mine = (chair for chair in self._chairs.values() if chair.owner == owner and chair.family == family)
            return [chair.number for chair in mine]
        view = views.of(family, what)
        if view is not None:
            _check_method(request, "GET")
            chair = await self._find(desk, owner, family, _asked_for(request, family))
            return await view(chair, *chair.current())
        call = self._calls.get(what)
        if call is None:
            raise Refused(fault("not_found", f"{views.NAMES[family]} has {', '.join(views.names(family))}"))
        _check_method(request, "POST")
        body = await read_body(request, Body)
        number = body.env_idx if family in BY_ENV_IDX else body.id
        if number is None:
            raise Refused(fault("bad_request", f"{'env_idx' if family in BY_ENV_IDX else 'id'} is missing"))
        if what == "close" and self._was(number, owner, family):
            return views.closed(family, number, False)
        chair = await self._find(desk, owner, family, number)
        return await call(chair, body, request.visitor.request_id.decode("latin-1"))

    # Numbers.

    def _was(self, number: int, owner: str, family: str) -> bool:  # noqa: ARG002  # a number is of one family
        return self._ended.get(number, ("", ""))[0] == owner

    async def _find(self, desk: Desk, owner: str, family: str, number: int) -> Chair:
        chair = self._chairs.get(number)
        if chair is not None and chair.owner == owner and chair.family == family:
            return chair
        if self._was(number, owner, family):
            _, session = self._ended[number]
            await Seat(desk, owner).ask(Status(session=session))  # raises: it says how it ended
        raise Refused(fault("unknown_session", f"there is no environment {number}, or it is another client's"))

    def _forget(self, number: int) -> None:
        chair = self._chairs.pop(number, None)
        if chair is not None and chair.session:
            self._ended[number] = (chair.owner, chair.session)
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    # Calls.

    async def _create(self, desk: Desk, owner: str, family: str, body: Body) -> Any:
        if body.commands:
            raise Refused(fault("bad_value", "which recipes are shown follows from the task; leave out `commands`"))
        self._number += 1 + secrets.randbelow(GAP)
        number = self._number
        chair = Chair(desk, owner, family, number, lambda _: self._forget(number))
        first = 0 if family == "webshop" else (body.id or 0) if family in BY_ENV_IDX else body.data_idx
        if family == "textcraft" and body.goal:
            chair.goal = body.goal.removeprefix("minecraft:")
        try:
            if family in BEGUN:
                await self._begin(chair, first, "")
            else:
                task = TASKS[family][1](self._ids[family], first)
                await chair.sit(task.env, task.kwargs)
        except BaseException:
            chair.close()
            raise
        if chair.open:  # else it has ended already, before anybody knew its number
            self._chairs[number] = chair
        return views.created(family, number, chair.last)

    async def _begin(self, chair: Chair, number: int, name: str) -> Played:
        task = TASKS[chair.family][1](self._ids[chair.family], number)
        options = task.options if chair.goal is None else {**task.options, "goal": chair.goal}
        with chair.held():
            try:
                await chair.sit(task.env, task.kwargs)
            except Refused:
                if not chair.session:  # the old one is gone, and there is no new one
                    self._chairs.pop(chair.number, None)
                raise
            return await chair.reset(task.seed, options, name=name)

    async def _reset(self, chair: Chair, body: Body, name: str) -> Any:
        wanted = {"webshop": body.session_id or 0, "searchqa": body.id or 0}
        played = await self._begin(chair, wanted.get(chair.family, body.data_idx), name)
        return views.begun(chair.family, chair.number, played)

    async def _step(self, chair: Chair, body: Body, name: str) -> Any:
        if body.action is None:
            raise Refused(fault("bad_request", "action is missing"))
        played = await chair.step(body.action, name=name)
        return views.stepped(chair.family, played, chair.total)

    async def _close(self, chair: Chair, body: Body, name: str) -> Any:  # noqa: ARG002
        self._forget(chair.number)
        return views.closed(chair.family, chair.number, chair.close())


def _check_method(request: HttpRequest, method: str) -> None:
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise Refused(fault("not_allowed", f"use {method}"))


def _asked_for(request: HttpRequest, family: str) -> int:
    """The number in the query."""
    key = "env_idx" if family in BY_ENV_IDX else "id"
    given = parse_qs(request.query.decode("latin-1")).get(key, [""])[0]
    if not (given.isascii() and given.isdigit() and len(given) < 17):
        raise Refused(fault("bad_request", f"the query names the environment: ?{key}=NUMBER"))
    return int(given)

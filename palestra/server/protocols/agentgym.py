"""AgentGym's HTTP protocol, with one path prefix per family, for example `/agentgym/textcraft/create`.

AgentGym's own clients work unchanged. They identify an environment by a number. Each number is valid only for the
client that created the environment, is never reused, and becomes invalid when the session ends.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from palestra.registry.agentgym_tasks import TASKS, family_envs
from palestra.remote.protocol import JSON, Status, fault
from palestra.server.app import App, deny
from palestra.server.auth import Client
from palestra.server.dispatcher import Dispatcher
from palestra.server.protocols import agentgym_views as views
from palestra.server.protocols import agentgym_webarena as webarena
from palestra.server.protocols.protocol_session import (
    MAX_ENDED,
    ProtocolSession,
    StepResult,
    error_details,
    read_body,
    send_error,
)
from palestra.server.request import HttpRequest, Receive, RequestError, Scope, Send, not_allowed
from palestra.server.settings import Settings

Number = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
# Families whose clients send the environment number as env_idx instead of id.
BY_ENV_IDX = frozenset({"searchqa", "sqlgym", "webarena", "webshop"})
RESET_AT_CREATE = frozenset({"searchqa", "textcraft", "webshop", "wordle"})  # families whose `create` starts an episode
MAX_GAP = 1 << 16  # maximum gap between consecutive environment numbers; random gaps make the numbers hard to guess


class Body(Struct, kw_only=True):
    """Body of any request in the protocol. Unknown fields are ignored."""

    id: Number | None = None
    env_idx: Number | None = None
    data_idx: Number = 0
    idx: Number = 0
    session_id: Number | None = None
    item_id: Number | None = None
    seed: Number | None = None
    action: str | None = None
    goal: str | None = None
    commands: str | None = None


class AgentGymSession(ProtocolSession):
    """Session for one environment number."""

    def __init__(
        self, dispatcher: Dispatcher, owner: str, family: str, number: int, on_end: Callable[[object], None]
    ) -> None:
        super().__init__(dispatcher, owner, on_end=on_end)
        self.family = family
        self.number = number
        self.goal: str | None = None  # goal for all episodes, if the client sent one when it created the environment

    def results(self) -> tuple[StepResult, StepResult]:
        """Return the first and the latest result of the running episode."""
        if self.first is None or self.last is None:
            raise RequestError(fault("reset_needed", "no episode is running; call reset first"))
        return self.first, self.last


class AgentGym:
    prefix = "/agentgym/"

    def __init__(self, settings: Settings) -> None:
        self._ids = {family: family_envs(settings.envs, family) for family in TASKS}
        self._sessions: dict[int, AgentGymSession] = {}
        self._ended: OrderedDict[int, tuple[str, str]] = OrderedDict()  # environment number -> (owner, session name)
        # Random, so that numbers from a previous run of the server are invalid.
        self._last_number = secrets.randbelow(1 << 32)
        self._operations: dict[str, Callable[[AgentGymSession, Body, str], Awaitable[Any]]] = {
            "reset": self._reset,
            "step": self._step,
            "close": self._close,
        }

    async def websocket(self, app: App, scope: Scope, receive: Receive, send: Send, client: Client) -> None:  # noqa: ARG002
        await receive()
        await deny(scope, send, fault("not_found", "AgentGym's protocol has no WebSocket"))

    async def close(self) -> None:
        self._sessions.clear()

    async def http(self, app: App, request: HttpRequest) -> None:
        family, _, route = request.path[len(self.prefix) :].partition("/")
        code = "ok"
        try:
            response = await self._handle(app.dispatcher, request, family, route)
        except RequestError as err:
            code = err.fault.code
            body = {"error": err.fault.message, "code": code, **error_details(err.fault)}
            await send_error(request, err.fault, body)
        else:
            await request.send(200, msgspec.json.encode(response), content_type=JSON)
        app.dispatcher.stats.requests["agentgym", code] += 1

    async def _handle(self, dispatcher: Dispatcher, request: HttpRequest, family: str, route: str) -> Any:
        if family not in TASKS:
            raise RequestError(fault("not_found", f"no such AgentGym family; available: {', '.join(TASKS)}"))
        if not self._ids[family]:
            message = f"this server has no environments for this family; their ids start with {TASKS[family][0]}"
            raise RequestError(fault("unknown_env", message))
        owner = request.client.owner
        if route == "" and request.method == "GET":
            return f"This is environment {views.NAMES[family]}."
        if route == "create":
            _check_method(request, "POST")
            return await self._create(dispatcher, owner, family, await read_body(request, Body))
        if route == "list_envs":
            _check_method(request, "GET")
            return [s.number for s in self._sessions.values() if s.owner == owner and s.family == family]
        view = views.find_view(family, route)
        if view is not None:
            _check_method(request, "GET")
            session = await self._find(dispatcher, owner, family, _query_number(request, family))
            return await view(session, *session.results())
        operation = self._operations.get(route)
        if operation is None:
            message = f"no such path; {views.NAMES[family]} supports {', '.join(views.routes(family))}"
            raise RequestError(fault("not_found", message))
        _check_method(request, "POST")
        body = await read_body(request, Body)
        number = body.env_idx if family in BY_ENV_IDX else body.id
        if number is None:
            raise RequestError(fault("bad_request", f"{'env_idx' if family in BY_ENV_IDX else 'id'} is missing"))
        if route == "close" and self._has_ended(number, owner):
            return views.close_response(family, number, False)
        session = await self._find(dispatcher, owner, family, number)
        return await operation(session, body, request.client.request_id.decode("latin-1"))

    # Environment numbers.

    def _has_ended(self, number: int, owner: str) -> bool:
        return self._ended.get(number, ("", ""))[0] == owner

    async def _find(self, dispatcher: Dispatcher, owner: str, family: str, number: int) -> AgentGymSession:
        session = self._sessions.get(number)
        if session is not None and session.owner == owner and session.family == family:
            return session
        if self._has_ended(number, owner):
            _, name = self._ended[number]
            # Raises an error with the reason why the session ended.
            await ProtocolSession(dispatcher, owner).request(Status(session=name))
        raise RequestError(fault("unknown_session", f"no environment {number}, or it belongs to another client"))

    def _forget(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None and session.session:
            self._ended[number] = (session.owner, session.session)
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)

    # Operations.

    async def _create(self, dispatcher: Dispatcher, owner: str, family: str, body: Body) -> Any:
        if body.commands:
            raise RequestError(fault("bad_value", "`commands` is not supported; the task determines the recipes"))
        self._last_number += 1 + secrets.randbelow(MAX_GAP)
        number = self._last_number
        session = AgentGymSession(dispatcher, owner, family, number, lambda _: self._forget(number))
        index = 0 if family in ("webarena", "webshop") else (body.id or 0) if family in BY_ENV_IDX else body.data_idx
        if family == "textcraft" and body.goal:
            session.goal = body.goal.removeprefix("minecraft:")
        try:
            if family in RESET_AT_CREATE:
                await self._start_episode(session, index, "")
            else:
                task = TASKS[family][1](self._ids[family], index)
                await session.ensure_open(task.env, task.kwargs)
        except BaseException:
            session.close()
            raise
        if session.is_open:  # the session may already have ended
            self._sessions[number] = session
        return views.create_response(family, number, session.last)

    async def _start_episode(self, session: AgentGymSession, index: int, request_id: str) -> StepResult:
        task = TASKS[session.family][1](self._ids[session.family], index)
        options = task.options if session.goal is None else {**task.options, "goal": session.goal}
        with session.exclusive():
            try:
                await session.ensure_open(task.env, task.kwargs)
            except RequestError:
                if not session.session:  # the previous session has ended, and no new one was opened
                    self._sessions.pop(session.number, None)
                raise
            return await session.reset(task.seed, options, request_id=request_id)

    async def _reset(self, session: AgentGymSession, body: Body, request_id: str) -> Any:
        indexes = {
            "webshop": body.session_id or 0,
            "searchqa": body.id or 0,
            "sqlgym": body.item_id or 0,
            "webarena": body.idx,
            "wordle": body.seed or 0,
        }
        result = await self._start_episode(session, indexes.get(session.family, body.data_idx), request_id)
        return views.reset_response(session.family, session.number, result)

    async def _step(self, session: AgentGymSession, body: Body, request_id: str) -> Any:
        if body.action is None:
            raise RequestError(fault("bad_request", "action is missing"))
        action = views.env_action(session.family, body.action)
        result = await session.step(action, request_id=request_id)
        if session.family == "webarena":
            return webarena.step_body(session, session.results()[0], result)
        return views.step_response(session.family, result, session.total_reward)

    async def _close(self, session: AgentGymSession, body: Body, request_id: str) -> Any:  # noqa: ARG002
        self._forget(session.number)
        return views.close_response(session.family, session.number, session.close())


def _check_method(request: HttpRequest, method: str) -> None:
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise RequestError(not_allowed(method))


def _query_number(request: HttpRequest, family: str) -> int:
    """Return the environment number from the query string."""
    key = "env_idx" if family in BY_ENV_IDX else "id"
    value = parse_qs(request.query.decode("latin-1")).get(key, [""])[0]
    if not (value.isascii() and value.isdigit() and len(value) < 17):
        raise RequestError(fault("bad_request", f"the query string must contain the environment number: ?{key}=NUMBER"))
    return int(value)

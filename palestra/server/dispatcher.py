"""Dispatch requests from HTTP, the WebSocket and other projects' protocols to sessions.

Every session runs one call at a time. Resets, steps and forks have sequence numbers. Each of them is executed only
once, even if the request is sent repeatedly, and its response is stored until the next call. A request to a session
that has ended returns the reason why it ended.
"""

from __future__ import annotations

import asyncio
from difflib import get_close_matches
from math import ceil
from time import monotonic
from typing import Any, Final

from palestra.errors import BadValue
from palestra.remote.protocol import (
    JSON,
    Close,
    Create,
    Fault,
    Fork,
    Render,
    Request,
    Reset,
    SessionRequest,
    Status,
    Step,
    Steps,
    SuggestAction,
    encoder,
    fault,
    fingerprint,
)
from palestra.server import worker as commands
from palestra.server.budget import ByteBudget
from palestra.server.calls import Calls
from palestra.server.metrics import Stats
from palestra.server.responses import (
    busy,
    draining,
    id_reused,
    quota_reached,
    session_gone,
    sessions_full,
    transcoded,
    unknown_session,
    with_fault_seq,
    with_timeout,
)
from palestra.server.sessions import Respond, Result, Session, Sessions
from palestra.server.settings import Settings, check_keywords
from palestra.server.vector_steps import VectorSteps

SWEEP_INTERVAL: Final = 0.25  # seconds between checks of leases and deadlines
MAX_RATE_ENTRIES: Final = 10_000
MAX_WAITERS: Final = 256  # maximum number of requests that wait for the same call; later retries get `session_busy`


class Dispatcher:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stats = Stats()
        self.budget = ByteBudget(total=settings.buffer, per_client=settings.buffer_per_client)
        self.sessions = Sessions(settings.node)
        self.calls = Calls(
            settings,
            self.sessions,
            self.stats,
            on_rows=lambda *rows: self._vector_steps.on_rows(*rows),
            preload=_one_id_per_class(settings.envs),
        )
        self._vector_steps = VectorSteps(self.calls, self._step)
        self.draining = False
        self._envs = frozenset(settings.envs)
        self._rate_limiter = None if settings.rate is None else RateLimiter(settings.rate)
        self._sweeper: asyncio.Task[None] | None = None
        self._handlers: dict[type, Any] = {
            Create: self._create,
            Reset: self._reset,
            Step: self._step,
            Steps: self._vector_steps.submit,
            Fork: self._fork,
            Render: self._render,
            SuggestAction: self._suggest_action,
            Status: self._status,
            Close: self._close,
        }

    async def start(self) -> None:
        """Start the workers and the periodic checks."""
        await self.calls.pool.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """End all sessions and stop the workers."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.end_all()
        await self.calls.pool.stop()

    def end_all(self) -> None:
        """End all sessions because the server is stopping. Running calls fail with the cause `stopped`."""
        self.draining = True
        for session in self.sessions.all():
            self.calls.end(session, "stopped", drop=False)

    @property
    def ready(self) -> bool:
        return not self.draining and self.calls.pool.ready

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL)
            self.calls.sweep()

    def submit(self, request: Request, owner: str, media_type: str, respond: Respond) -> None:
        """Handle a request. `respond` is called exactly once, now or later, with an encoded response or an error."""
        count = len(request.steps) if isinstance(request, Steps) else 1
        wait = 0.0 if self._rate_limiter is None else self._rate_limiter.wait(owner, count)
        if wait:
            respond(fault("rate_limited", "too many requests per second", retry_after=ceil(100 * wait) / 100))
            return
        if self.calls.free <= 0 and not isinstance(request, Close | Status):
            respond(self.calls.full())
            return
        if request.timeout is not None and count == 1:
            respond = with_timeout(respond, request.timeout)
        self._handlers[type(request)](request, owner, media_type, respond)

    async def request(self, request: Request, owner: str, media_type: str = JSON) -> Result:
        """Submit a request and wait for its response."""
        response: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.submit(request, owner, media_type, lambda result: None if response.done() else response.set_result(result))
        return await response

    def release(self, name: str, owner: str) -> None:
        """End a session whose client has disconnected, regardless of rate limits."""
        session = self.sessions.find(name, owner)
        if session is not None:
            self.calls.end(session, "closed")

    # Handlers, one per request type.

    def _create(self, request: Create, owner: str, media_type: str, respond: Respond) -> None:
        error = self._keyword_error(request.kwargs)
        if error is not None:
            respond(error)
            return
        if request.id:
            existing = self.sessions.created_by(owner, request.id)
            if existing is not None:
                if fingerprint(request) != existing.create_fingerprint:
                    respond(id_reused())
                    return
                self._repeat(existing, media_type, respond, existing.create_response, existing.create_media_type)
                return
        if request.env not in self._envs:
            respond(self._unknown_env(request.env))
            return
        if request.autoreset is not None and request.root is None:
            respond(fault("bad_request", "`autoreset` requires `root`, the seed from which all episodes are derived"))
            return
        refusal = self._refuse_new_session(owner)
        if refusal is not None:
            respond(refusal)
            return
        worker = self.calls.pool.place(request.env.partition(":")[0])
        if worker is None:
            respond(fault("unavailable", "no worker is running for this environment", retry_after=1.0))
            return
        lease = min(request.lease or self.settings.lease, self.settings.max_lease)
        session = self.sessions.open(
            worker=worker, env=request.env, owner=owner, lease=lease, create_id=request.id, now=monotonic()
        )
        session.create_media_type = media_type
        session.create_fingerprint = fingerprint(request) if request.id else 0
        vector = None if request.autoreset is None else (request.autoreset, request.root, request.episode)
        self.calls.start(session, media_type, respond, commands.MAKE, (request.env, request.kwargs, vector))

    def _reset(self, request: Reset, owner: str, media_type: str, respond: Respond) -> None:
        error = self._keyword_error(request.options)
        if error is not None:
            respond(error)
            return
        session = self._accept_numbered(request, owner, media_type, respond)
        if session is not None:
            session.failure = None
            payload = (request.seed, request.options, request.actions, media_type)
            self.calls.start(session, media_type, respond, commands.RESETS, payload)

    def _step(self, request: Step, owner: str, media_type: str, respond: Respond) -> None:
        session = self._accept_numbered(request, owner, media_type, respond)
        if session is not None:
            self.calls.start(session, media_type, respond, commands.STEPS, (request.action, media_type))

    def _fork(self, request: Fork, owner: str, media_type: str, respond: Respond) -> None:
        session = self.sessions.find(request.session, owner)
        if session is None or not _is_retry(request, session):
            refusal = self._refuse_new_session(owner)
            if refusal is not None:
                respond(refusal)
                return
        session = self._accept_numbered(request, owner, media_type, respond)
        if session is not None:
            self.calls.start_fork(session, media_type, respond)

    def _render(self, request: Render, owner: str, media_type: str, respond: Respond) -> None:
        session = self._accept(request, owner, respond)
        if session is not None:
            self.calls.start(session, media_type, respond, commands.RENDERS, (request.mode, media_type))

    def _suggest_action(self, request: SuggestAction, owner: str, media_type: str, respond: Respond) -> None:
        session = self._accept(request, owner, respond)
        if session is not None:
            payload = (request.player, request.seed, media_type)
            self.calls.start(session, media_type, respond, commands.SUGGEST_ACTION, payload)

    def _status(self, request: Status, owner: str, media_type: str, respond: Respond) -> None:
        session = self._find(request, owner, respond)
        if session is not None:
            body = {"session": session.id, "env": session.env, "lease": session.lease, "seq": session.seq}
            respond(encoder(media_type)({**body, "busy": session.waiters is not None}))

    def _close(self, request: Close, owner: str, media_type: str, respond: Respond) -> None:
        session = self.sessions.find(request.session, owner)
        if session is None:
            cause = self.sessions.end_cause(request.session, owner)
            if cause is None:
                respond(unknown_session())
                return
        else:
            cause = "closed"
            self.calls.end(session, cause)
        respond(encoder(media_type)({"closed": True, "cause": cause}))

    # Checks that run before a call starts.

    def _find(self, request: SessionRequest, owner: str, respond: Respond) -> Session | None:
        """Return the session and renew its lease. If there is no such session, send an error and return None."""
        session = self.sessions.find(request.session, owner)
        if session is None:
            cause = self.sessions.end_cause(request.session, owner)
            respond(unknown_session() if cause is None else session_gone(cause))
            return None
        session.expires_at = monotonic() + session.lease
        return session

    def _accept(self, request: SessionRequest, owner: str, respond: Respond) -> Session | None:
        """Return the session if it can run a call that has no number. Otherwise, send an error and return None."""
        session = self._find(request, owner, respond)
        if session is not None:
            if session.waiters is not None:
                respond(busy())
                return None
            if session.failure is not None:
                respond(session.failure)
                return None
        return session

    def _accept_numbered(
        self, request: Reset | Step | Fork, owner: str, media_type: str, respond: Respond
    ) -> Session | None:
        """Return the session if this is its next numbered call. Otherwise, send an error or the stored response."""
        session = self._find(request, owner, respond)
        if session is None:
            return None
        if _is_retry(request, session):
            if fingerprint(request) != session.last_fingerprint:
                respond(id_reused())
            else:
                stored = session.last_response
                if stored is not None and not isinstance(stored, bytes | Fault):
                    stored = session.last_response = stored.extract(session.key, session.seq - 1)
                self._repeat(session, media_type, respond, stored, session.last_media_type)
            return None
        if request.seq is not None and request.seq != session.seq:
            message = f"the next sequence number is {session.seq}, got {request.seq}"
            respond(fault("out_of_order", message, expected=session.seq))
            return None
        if session.waiters is not None:
            respond(busy())
            return None
        session.seq += 1
        session.last_id = request.id
        session.last_fingerprint = fingerprint(request) if request.id else 0
        session.last_response = None
        session.last_media_type = media_type
        if session.failure is not None and not isinstance(request, Reset):
            session.last_response = result = with_fault_seq(session.failure, session.seq - 1)
            respond(result)
            return None
        return session

    def _repeat(
        self,
        session: Session,
        media_type: str,
        respond: Respond,
        stored: Result | None,
        stored_media_type: str,
    ) -> None:
        """Respond to a retry with the stored response, or with the result of the call that is still running."""
        self.stats.retries += 1
        if stored_media_type != media_type:
            respond = transcoded(session, respond, stored_media_type, media_type)
        if stored is not None:
            respond(stored)
        elif session.waiters is not None and len(session.waiters) < MAX_WAITERS:
            session.waiters.append(respond)
        else:
            respond(busy())

    def _keyword_error(self, keywords: dict[str, Any] | None) -> Fault | None:
        if keywords:
            try:
                check_keywords(keywords, unrestricted=self.settings.any_kwargs)
            except BadValue as err:
                return fault("bad_value", str(err), kind="BadValue")
        return None

    def _refuse_new_session(self, owner: str) -> Fault | None:
        settings = self.settings
        if self.draining:
            return draining()
        if len(self.sessions) >= settings.max_sessions:
            return sessions_full(settings.max_sessions)
        quota = settings.session_quota
        if quota is not None and self.sessions.count(owner) >= quota:
            return quota_reached(quota)
        return None

    def _unknown_env(self, name: str) -> Fault:
        matches = get_close_matches(name, self._envs, n=3)
        hint = f"Did you mean {', '.join(matches)}?" if matches else "GET /v1/envs lists the served environments."
        return fault("unknown_env", f"{name[:100]!r} is not served here. {hint}", kind="UnknownEnv")


class RateLimiter:
    """Token bucket per client that holds one second of requests. A vector step may make it negative."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: dict[str, tuple[float, float]] = {}  # owner -> (tokens, time of the last update)

    def wait(self, owner: str, count: int) -> float:
        """Take `count` tokens and return 0. If the bucket is empty, return the seconds until it has a token again."""
        now, size = monotonic(), max(1.0, self._rate)
        if len(self._buckets) > MAX_RATE_ENTRIES:
            self._buckets.clear()
        tokens, updated = self._buckets.get(owner, (size, now))
        tokens = min(size, tokens + (now - updated) * self._rate)
        accepted = tokens >= 1.0
        self._buckets[owner] = (tokens - count if accepted else tokens, now)
        return 0.0 if accepted else (1.0 - tokens) / self._rate


def _is_retry(request: Reset | Step | Fork, session: Session) -> bool:
    """Return whether a request has the previous call's id, and either the same sequence number or none."""
    return (
        bool(request.id) and request.id == session.last_id and (request.seq is None or request.seq == session.seq - 1)
    )


def _one_id_per_class(ids: tuple[str, ...]) -> list[str]:
    """Return one id per environment class. Workers import these classes at startup."""
    from palestra import registry

    by_class: dict[str, str] = {}
    for env_id in ids:
        by_class.setdefault(registry.get_spec(env_id).entry_point, env_id)
    return list(by_class.values())

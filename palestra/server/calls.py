"""Send calls to workers, deliver their results, and end sessions on request or after a timeout or worker failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, Final

from palestra.remote.protocol import Fault, encoder, fault
from palestra.server import worker as commands
from palestra.server.metrics import Stats
from palestra.server.responses import session_gone, with_fault_seq, with_seq
from palestra.server.sessions import Cause, Respond, Result, Session, Sessions
from palestra.server.settings import Settings
from palestra.server.worker_pool import Worker, WorkerPool

log = logging.getLogger("palestra.server")


class Calls:
    """Tracks the calls that are running in the workers. `on_rows` is called with the results of vector steps."""

    def __init__(
        self, settings: Settings, sessions: Sessions, stats: Stats, *, on_rows: Callable[..., None], preload: list[str]
    ) -> None:
        self.sessions = sessions
        self.stats = stats
        self.in_flight = 0
        self.pool = WorkerPool(
            settings.groups,
            on_reply=self.on_reply,
            on_death=self._on_worker_death,
            threads=settings.threads,
            memory=settings.memory,
            imports=settings.imports,
            preload=preload,
            expose_errors=settings.expose_errors,
        )
        self._max_in_flight = settings.max_in_flight
        self._expose_errors = settings.expose_errors
        self.step_timeout = settings.step_timeout
        self._reset_timeout = settings.reset_timeout or settings.step_timeout
        self._on_rows = on_rows
        self._forks: dict[int, Session] = {}  # pending forks by the original session's key

    @property
    def free(self) -> int:
        """Number of calls that can be started before the limit is reached."""
        return self._max_in_flight - self.in_flight

    def full(self) -> Fault:
        return fault("capacity", f"the server is already running {self.in_flight} calls, its maximum", retry_after=1.0)

    def start(self, session: Session, media_type: str, respond: Respond, what: int, payload: Any) -> None:
        """Send a command to an idle session's worker. `respond` is called with the result."""
        session.media_type = media_type
        session.waiters = [respond]
        session.call_started = now = monotonic()
        resets = what == commands.RESETS or what == commands.MAKE
        session.deadline = now + (self._reset_timeout if resets else self.step_timeout)
        self.in_flight += 1
        self.pool.send(session.worker, (session.key, what, payload))

    def start_fork(self, session: Session, media_type: str, respond: Respond) -> None:
        """Copy the episode in `session` into a new session on the same worker."""
        fork = self.sessions.open(
            worker=session.worker,
            env=session.env,
            owner=session.owner,
            lease=session.lease,
            create_id="",
            now=monotonic(),
        )
        fork.expires_at = inf  # the fork's lease starts when the copy is complete
        self._forks[session.key] = fork
        self.start(session, media_type, respond, commands.FORKS, fork.key)

    # Results of calls.

    def on_reply(self, key: int, what: int, status: int, data: Any) -> None:
        """Deliver the result of a command to the clients that are waiting for it."""
        if what == commands.MANY:
            self._on_rows(*data)
            return
        session = self.sessions.by_key.get(key)
        if what == commands.FAILURE:
            if session is not None:
                self._log_failure(session, *data)
            return
        if session is None or session.waiters is None:
            return  # the call was abandoned after its timeout
        now = monotonic()
        self.stats.record_call(_OPERATIONS[what], now - session.call_started)
        session.expires_at = now + session.lease
        result: Result
        if what == commands.MAKE:
            result = self._created(session, status, data)
        elif what == commands.FORKS:
            result = self._forked(session, status, data)
        elif status == commands.OK or status == commands.OVER:
            result = data if isinstance(data, bytes) else self._encode(session, data)
            if isinstance(result, bytes) and (what == commands.STEPS or what == commands.RESETS):
                result = with_seq(result, session.seq - 1, session.media_type)
                if status == commands.OVER:
                    self.stats.episodes += 1
        else:
            result = self._failed(session, status, data)
        if what in _NUMBERED:
            session.last_response = result = with_fault_seq(result, session.seq - 1)
        self._deliver(session, result)

    def _encode(self, session: Session, data: Any) -> Result:
        """Encode a result that the worker could not encode because its interpreter does not have msgspec."""
        try:
            body: bytes = encoder(session.media_type)(data)
        except (ValueError, TypeError, OverflowError) as err:  # unpaired surrogates, or integers of more than 64 bits
            return self._failed(session, commands.BROKE, commands.broken(err))
        return body

    def _deliver(self, session: Session, result: Result) -> None:
        waiters, session.waiters = session.waiters, None
        self.in_flight -= 1
        for respond in waiters or ():
            respond(result)
        if session.end_cause is not None:
            self.sessions.forget_key(session.key)
            self.pool.drop(session.worker, session.key)

    def _created(self, session: Session, status: int, data: Any) -> Result:
        if status != commands.OK:
            result = self._failed(session, status, data)
            self.sessions.end(session, None)
            session.end_cause = session.end_cause or "closed"  # so that `_deliver` drops the session
            return result
        self.stats.opened += 1
        body = {"session": session.id, "lease": session.lease, "seq": 0, **data}
        session.create_response = encoder(session.media_type)(body)
        log.info("session opened", extra={"session": session.id, "env": session.env, "client": session.owner})
        return session.create_response

    def _forked(self, session: Session, status: int, data: Any) -> Result:
        fork = self._forks.pop(session.key)
        if status != commands.OK:
            self._discard_fork(fork)
            return self._failed(session, status, data)
        self.stats.opened += 1
        fork.expires_at = monotonic() + fork.lease
        extra = {"session": fork.id, "env": fork.env, "client": fork.owner, "fork_of": session.id}
        log.info("session opened", extra=extra)
        if session.end_cause is not None:  # the client will not receive the fork's name
            self.end(fork, "closed")
        body = {"session": fork.id, "env": fork.env, "lease": fork.lease}
        return with_seq(encoder(session.media_type)(body), session.seq - 1, session.media_type)

    def _discard_fork(self, fork: Session) -> None:
        self.sessions.end(fork, None)
        fork.worker.sessions.discard(fork.key)

    def _failed(self, session: Session, status: int, data: Any) -> Fault:
        if status == commands.REFUSED:
            code, kind, message = data
            return fault(code, message, kind=kind)
        boundary, cause, kind, message, trace = data
        self._log_failure(session, kind, message, trace)
        if not self._expose_errors:
            message, trace = f"{commands.HIDDEN} for session {session.id}", ""
        session.failure = fault(
            "env_failed", f"{kind}: {message}", boundary=boundary, cause=cause, kind=kind, trace=trace
        )
        return session.failure

    def _log_failure(self, session: Session, kind: str, message: str, trace: str) -> None:
        extra = {"session": session.id, "env": session.env, "error": f"{kind}: {message}"}
        if not self._expose_errors:  # otherwise, the client has received the traceback
            extra["trace"] = trace
        log.warning("environment failed", extra=extra)

    # Methods that end sessions.

    def end(self, session: Session, cause: Cause, *, drop: bool = True) -> None:
        """End a session. A running call fails with this cause, and the environment is closed when the call returns."""
        self.stats.ended[cause] += 1
        self.sessions.end(session, cause)
        log.info("session ended", extra={"session": session.id, "env": session.env, "cause": cause})
        if session.waiters is None:
            if drop:
                self.pool.drop(session.worker, session.key)
            return
        waiters, session.waiters = session.waiters, []
        session.end_cause = cause
        gone = session_gone(cause)
        for respond in waiters:
            respond(gone)

    def sweep(self) -> None:
        """Abandon calls that exceed their timeout and end sessions whose lease has expired."""
        now = monotonic()
        for session in self.sessions.with_calls():
            if session.waiters is not None:
                if session.deadline < now:
                    self._lose(session, "deadline")
                    self.pool.abandon(session.worker, session.key)
            elif session.expires_at < now:
                self.end(session, "expired")
        self.pool.check_workers()

    def _on_worker_death(self, worker: Worker, exit_status: str, running: frozenset[int]) -> None:
        """End an exited worker's sessions. `running` contains the keys of the sessions that were running a call."""
        for fork in [self._forks.pop(key) for key in worker.sessions if key in self._forks]:
            self._discard_fork(fork)
        for key in list(worker.sessions):
            session = self.sessions.by_key.get(key)
            if session is not None:
                crashed = key in running and session.waiters is not None
                self._lose(session, "crashed" if crashed else "worker", exit_status)

    def _lose(self, session: Session, cause: Cause, detail: str = "") -> None:
        """End a session whose environment is lost, together with its pending fork, if any."""
        waiters, session.waiters = session.waiters, None
        if waiters is not None:
            self.in_flight -= 1
        fork = self._forks.pop(session.key, None)
        if fork is not None:
            self._discard_fork(fork)
        if session.end_cause is None:
            self.stats.ended[cause] += 1
            log.warning("session lost", extra={"session": session.id, "env": session.env, "cause": cause})
        self.sessions.end(session, cause)
        self.sessions.forget_key(session.key)
        gone = session_gone(cause, detail)
        for respond in waiters or ():
            respond(gone)


_OPERATIONS: Final = {
    commands.MAKE: "create",
    commands.RESETS: "reset",
    commands.STEPS: "step",
    commands.ROW: "step",
    commands.FORKS: "fork",
    commands.RENDERS: "render",
    commands.SUGGEST_ACTION: "suggest_action",
}
_NUMBERED: Final = frozenset({commands.RESETS, commands.STEPS, commands.ROW, commands.FORKS})

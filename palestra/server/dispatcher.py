"""The desk: a request and whose it is in, an answer out. HTTP, the socket and the dialects all come here.

What holds for every session: one call at a time; a call that changes something has a number, and each number is carried
out once, however often it is asked; its answer is kept until the next. A session that ends says how it ended.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import ceil, inf
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
from palestra.server.responses import busy, counted, gone, id_reused, numbered, patient, rewritten, unknown_session
from palestra.server.sessions import Cause, Kept, Result, Session, Sessions, Tell
from palestra.server.settings import Settings, check_keywords
from palestra.server.stats import Stats
from palestra.server.steps import Rows, Vector
from palestra.server.worker_pool import Worker, WorkerPool

SWEEP: Final = 0.25  # seconds between looks at the clock
log = logging.getLogger("palestra.server")


class Desk:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stats = Stats()
        self.sessions = Sessions(settings.node)
        self.room = WorkerPool(
            settings.groups,
            replied=self._replied,
            died=self._died,
            threads=settings.threads,
            memory=settings.memory,
            imports=settings.imports,
            preload=_one_a_class(settings.envs),
        )
        self.draining = False
        self.in_flight = 0
        self._envs = frozenset(settings.envs)
        self._rates: dict[str, tuple[float, float]] = {}  # owner -> what is left, and when that was
        self._forks: dict[int, Session] = {}  # the new session, by its parent's number
        self._vectors: dict[int, Vector] = {}  # requests for many steps, by their numbers in the workers
        self._vector = 0  # the last of those numbers
        self._sweeper: asyncio.Task[None] | None = None
        self._doing = {
            Create: self._create,
            Reset: self._reset,
            Step: self._step,
            Steps: self._steps,
            Fork: self._fork,
            Render: self._render,
            SuggestAction: self._suggest_action,
            Status: self._look,
            Close: self._close,
        }

    async def start(self) -> None:
        await self.room.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        self.draining = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.end_all()
        await self.room.stop()

    def end_all(self) -> None:
        """The server stops: whoever waits is told."""
        self.draining = True
        for session in self.sessions.all():
            self._end(session, "stopped", drop=False)

    @property
    def ready(self) -> bool:
        return not self.draining and self.room.ready

    # What is asked.

    def submit(self, ask: Request, owner: str, write: str, tell: Tell) -> None:
        """Begin what is asked; `tell` gets the answer, now or later, once."""
        settings = self.settings
        calls = len(ask.steps) if isinstance(ask, Steps) else 1
        wait = 0.0 if settings.rate is None else self._over_rate(owner, settings.rate, calls)
        if wait:
            tell(fault("rate_limited", "too many requests a second", retry_after=ceil(100 * wait) / 100))
            return
        if self.in_flight >= settings.max_in_flight and not isinstance(ask, Close | Status):
            tell(self._full())
            return
        if ask.timeout is not None and calls == 1:
            tell = patient(tell, ask.timeout)
        self._doing[type(ask)](ask, owner, write, tell)  # type: ignore[operator]

    async def ask(self, ask: Request, owner: str, write: str = JSON) -> Result:
        """`submit`, awaited."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.submit(ask, owner, write, lambda result: None if answer.done() else answer.set_result(result))
        return await answer

    def hang_up(self, name: str, owner: str) -> None:
        """End a session whose client is gone: nobody asks for it, so no rate and no limit holds it up."""
        session = self.sessions.find(name, owner)
        if session is not None:
            self._end(session, "closed")

    def _create(self, ask: Create, owner: str, write: str, tell: Tell) -> None:
        settings, sessions = self.settings, self.sessions
        if ask.kwargs:
            try:
                check_keywords(ask.kwargs, any_words=settings.any_kwargs)
            except BadValue as err:
                tell(fault("bad_value", str(err), kind="BadValue"))
                return
        if ask.id:
            before = sessions.created_by(owner, ask.id)
            if before is not None:
                if fingerprint(ask) != before.create_fingerprint:
                    tell(id_reused())
                    return
                self._again(before, write, tell, before.made, before.made_write)
                return
        if ask.env not in self._envs:
            tell(self._unknown_env(ask.env))
            return
        if self.draining:
            tell(fault("draining", "this server is about to stop", retry_after=5.0))
            return
        if ask.autoreset is not None and ask.root is None:
            tell(fault("bad_request", "a session with autoreset needs a root, the seed of all its episodes"))
            return
        refusal = self._room_for_one(owner)
        if refusal is not None:
            tell(refusal)
            return
        worker = self.room.place(ask.env.partition(":")[0])
        if worker is None:
            tell(fault("unavailable", "no worker is running for that environment", retry_after=1.0))
            return
        lease = min(ask.lease or settings.lease, settings.longest_lease)
        session = sessions.open(worker=worker, env=ask.env, owner=owner, lease=lease, creation=ask.id, now=monotonic())
        vector = None if ask.autoreset is None else (ask.autoreset, ask.root, ask.episode)
        session.made_write = write
        session.create_fingerprint = fingerprint(ask) if ask.id else 0
        self._begin(session, write, tell, (session.key, commands.MAKE, (ask.env, ask.kwargs, vector)))

    def _room_for_one(self, owner: str) -> Fault | None:
        settings = self.settings
        if len(self.sessions) >= settings.max_sessions:
            return fault("capacity", f"all {settings.max_sessions} sessions are taken", retry_after=5.0)
        quota = settings.sessions_per_client
        if quota is not None and self.sessions.held_by(owner) >= quota:
            return fault("quota", f"you have {quota} sessions, as many as a client may", retry_after=5.0)
        return None

    def _reset(self, ask: Reset, owner: str, write: str, tell: Tell) -> None:
        if ask.options:
            try:
                check_keywords(ask.options, any_words=self.settings.any_kwargs)
            except BadValue as err:
                tell(fault("bad_value", str(err), kind="BadValue"))
                return
        session = self._numbered(ask, owner, write, tell)
        if session is not None:
            session.broken = None
            payload = (ask.seed, ask.options, ask.actions, write)
            self._begin(session, write, tell, (session.key, commands.RESETS, payload))

    def _step(self, ask: Step, owner: str, write: str, tell: Tell) -> None:
        session = self._numbered(ask, owner, write, tell)
        if session is not None:
            self._begin(session, write, tell, (session.key, commands.STEPS, (ask.action, write)))

    def _steps(self, ask: Steps, owner: str, write: str, tell: Tell) -> None:
        """What `_step` does for one, for many: those whose turn it is go to the workers together."""
        now = monotonic()
        number = self._vector = self._vector + 1
        vector = Vector(len(ask.steps), write, tell, partial(self._vectors.pop, number, None), now)
        self._vectors[number] = vector
        free = self.settings.max_in_flight - self.in_flight
        orders: dict[Worker, tuple[list[int], list[int], list[str]]] = {}
        named, find = ask.id, self.sessions.by_id.get
        for index, (name, seq, action) in enumerate(ask.steps):
            session = find(name)
            told = partial(vector.told, index)
            if (
                free > 0
                and session is not None
                and seq == session.seq
                and session.waiters is None
                and session.broken is None
                and session.owner == owner
            ):
                free -= 1
                session.seq = seq + 1
                session.last_id = named
                session.last_fingerprint = hash(action)
                session.last = None
                session.last_write = session.write = write
                session.waiters = [told]
                session.began = now
                order = orders.get(session.worker)
                if order is None:
                    order = orders[session.worker] = ([], [], [])
                order[0].append(session.key)
                order[1].append(index)
                order[2].append(action)
            elif free > 0:
                self._step(Step(id=named, session=name, seq=seq, action=action), owner, write, told)
            else:
                told(self._full())
        if ask.timeout is not None:
            vector.answer_within(ask.timeout)
        for worker, order in orders.items():
            self.in_flight += len(order[0])
            self.room.send(worker, (0, commands.MANY, (number, write, *order)))

    def _full(self) -> Fault:
        return fault("capacity", f"{self.in_flight} calls are under way", retry_after=1.0)

    def _fork(self, ask: Fork, owner: str, write: str, tell: Tell) -> None:
        held = self.sessions.find(ask.session, owner)
        if held is None or not _named_again(ask, held):
            refusal = fault("draining", "this server is about to stop") if self.draining else self._room_for_one(owner)
            if refusal is not None:
                tell(refusal)
                return
        session = self._numbered(ask, owner, write, tell)
        if session is not None:
            twin = self.sessions.open(
                worker=session.worker,
                env=session.env,
                owner=owner,
                lease=session.lease,
                creation="",
                now=monotonic(),
            )
            twin.until = inf  # nobody can use it before it is there
            self._forks[session.key] = twin
            self._begin(session, write, tell, (session.key, commands.FORKS, twin.key))

    def _render(self, ask: Render, owner: str, write: str, tell: Tell) -> None:
        session = self._free(ask, owner, tell)
        if session is not None:
            self._begin(session, write, tell, (session.key, commands.RENDERS, (ask.mode, write)))

    def _suggest_action(self, ask: SuggestAction, owner: str, write: str, tell: Tell) -> None:
        session = self._free(ask, owner, tell)
        if session is not None:
            self._begin(session, write, tell, (session.key, commands.SUGGEST_ACTION, (ask.player, ask.seed, write)))

    def _look(self, ask: Status, owner: str, write: str, tell: Tell) -> None:
        session = self._found(ask, owner, tell)
        if session is not None:
            data = {"session": session.id, "env": session.env, "lease": session.lease, "seq": session.seq}
            data["busy"] = session.waiters is not None
            tell(encoder(write)(data))

    def _close(self, ask: Close, owner: str, write: str, tell: Tell) -> None:
        session = self.sessions.find(ask.session, owner)
        if session is None:
            cause = self.sessions.how_ended(ask.session, owner)
            if cause is None:
                tell(unknown_session())
            else:
                tell(encoder(write)({"closed": True, "cause": cause}))
            return
        self._end(session, "closed")
        tell(encoder(write)({"closed": True, "cause": "closed"}))

    # Which call is next.

    def _found(self, ask: SessionRequest, owner: str, tell: Tell) -> Session | None:
        session = self.sessions.find(ask.session, owner)
        if session is None:
            cause = self.sessions.how_ended(ask.session, owner)
            tell(unknown_session() if cause is None else gone(cause))
            return None
        session.until = monotonic() + session.lease
        return session

    def _free(self, ask: SessionRequest, owner: str, tell: Tell) -> Session | None:
        """A session that can take a call without a number."""
        session = self._found(ask, owner, tell)
        if session is not None:
            if session.waiters is not None:
                tell(busy())
                return None
            if session.broken is not None:
                tell(session.broken)
                return None
        return session

    def _numbered(self, ask: Reset | Step | Fork, owner: str, write: str, tell: Tell) -> Session | None:
        """A session whose next call this is; otherwise the caller is told."""
        session = self._found(ask, owner, tell)
        if session is None:
            return None
        if _named_again(ask, session):
            if fingerprint(ask) != session.last_fingerprint:
                tell(id_reused())
            else:
                self._again(session, write, tell, session.last, session.last_write)
            return None
        if ask.seq is not None and ask.seq != session.seq:
            tell(fault("out_of_order", f"call {session.seq} is next, not {ask.seq}", expected=session.seq))
            return None
        if session.waiters is not None:
            tell(busy())
            return None
        session.seq += 1
        session.last_id = ask.id
        session.last_fingerprint = fingerprint(ask) if ask.id else 0
        session.last = None
        session.last_write = write
        if session.broken is not None and not isinstance(ask, Reset):
            session.last = counted(session.broken, session.seq - 1)
            tell(session.last)
            return None
        return session

    def _again(self, session: Session, write: str, tell: Tell, last: Result | Kept | None, then: str) -> None:
        """The answer to a call that was made before: as it was, or when it comes; `then`: how it was to be written."""
        self.stats.retries += 1
        if last is not None and not isinstance(last, bytes | Fault):
            last = last.alone(session.key, session.seq - 1)
        if then != write:
            tell = rewritten(tell, then, write)
        if last is not None:
            tell(last)
        elif session.waiters is not None:
            session.waiters.append(tell)
        else:
            tell(busy())

    def _begin(self, session: Session, write: str, tell: Tell, command: tuple[int, int, Any]) -> None:
        session.write = write
        session.waiters = [tell]
        session.began = monotonic()
        self.in_flight += 1
        self.room.send(session.worker, command)

    # What comes of it.

    def _replied(self, key: int, what: int, how: int, data: Any) -> None:
        if what == commands.MANY:
            self._stepped(*data)
            return
        session = self.sessions.at(key)
        if session is None or session.waiters is None:
            return  # it was given up
        now = monotonic()
        self.stats.took(_WHATS[what], now - session.began)
        session.until = now + session.lease
        result: Result
        if what == commands.MAKE:
            result = self._made(session, how, data)
        elif what == commands.FORKS:
            result = self._forked(session, how, data)
        elif how == commands.OK or how == commands.OVER:
            result = data if isinstance(data, bytes) else self._written(session, data)
            if isinstance(result, bytes) and (what == commands.STEPS or what == commands.RESETS):
                result = numbered(result, session.seq - 1, session.write)
                if how == commands.OVER:
                    self.stats.episodes += 1
        else:
            result = self._failed(session, how, data)
        if what in _NUMBERED:
            session.last = result = counted(result, session.seq - 1)
        self._tell(session, result)

    def _stepped(self, number: int, write: str, keys: tuple[int, ...], data: Any, over: int) -> None:
        """Some of a vector's steps are done."""
        if not isinstance(data, bytes):  # the worker has no means to write
            try:
                data = encoder(write)(data)
            except (ValueError, TypeError, OverflowError) as err:
                if len(keys) == 1:
                    self._replied(keys[0], commands.ROW, commands.BROKE, commands.broken(err))
                else:
                    for key, row in zip(keys, data, strict=True):
                        self._stepped(number, write, (key,), [row], int(row[3] or row[4]))
                return
        vector = self._vectors.get(number)
        now = monotonic()
        at = self.sessions.by_key.get
        rows = Rows(keys, data, write)
        stray: set[int] = set()
        for key in keys:
            session = at(key)
            if session is None or session.waiters is None:  # it was given up
                stray.add(key)
                continue
            waiters, session.waiters = session.waiters, None
            self.in_flight -= 1
            session.until = now + session.lease
            if session.closing is not None:  # and told so
                stray.add(key)
                self.sessions.forget_key(key)
                self.room.drop(session.worker, key)
                continue
            session.last = rows
            for tell in waiters[1:]:  # the first is the vector itself
                tell(rows.alone(key, session.seq - 1))
        self.stats.episodes += over
        if vector is not None:
            self.stats.took("step", now - vector.began, len(keys))
            vector.add(rows.without(stray) if stray else rows.data, len(keys) - len(stray))

    def _written(self, session: Session, data: Any) -> Result:
        """What a worker that has no means to write left to us."""
        try:
            body: bytes = encoder(session.write)(data)
        except (ValueError, TypeError, OverflowError) as err:  # half a character, a number too large
            return self._failed(session, commands.BROKE, commands.broken(err))
        return body

    def _tell(self, session: Session, result: Result) -> None:
        waiters, session.waiters = session.waiters, None
        self.in_flight -= 1
        for tell in waiters or ():
            tell(result)
        if session.closing is not None:
            self.sessions.forget_key(session.key)
            self.room.drop(session.worker, session.key)

    def _made(self, session: Session, how: int, data: Any) -> Result:
        if how != commands.OK:
            result = self._failed(session, how, data)
            self.sessions.end(session, None)
            session.closing = session.closing or "closed"  # so that its number goes once it is told
            return result
        self.stats.opened += 1
        made = {"session": session.id, "lease": session.lease, "seq": 0, **data}
        session.made = encoder(session.write)(made)
        log.info("session opened", extra={"session": session.id, "env": session.env, "client": session.owner})
        return session.made

    def _forked(self, session: Session, how: int, data: Any) -> Result:
        twin = self._forks.pop(session.key)
        if how != commands.OK:
            self.sessions.end(twin, None)
            twin.worker.sessions.discard(twin.key)
            return self._failed(session, how, data)
        self.stats.opened += 1
        twin.until = monotonic() + twin.lease
        told = {"session": twin.id, "env": twin.env, "client": twin.owner, "fork_of": session.id}
        log.info("session opened", extra=told)
        if session.closing is not None:  # nobody will be told its name
            self._end(twin, "closed")
        made = {"session": twin.id, "env": twin.env, "lease": twin.lease}
        return numbered(encoder(session.write)(made), session.seq - 1, session.write)

    def _failed(self, session: Session, how: int, data: Any) -> Fault:
        if how == commands.REFUSED:
            code, kind, message = data
            return fault(code, message, kind=kind)
        boundary, cause, kind, message, trace = data
        session.broken = fault(
            "env_failed", f"{kind}: {message}", boundary=boundary, cause=cause, kind=kind, trace=trace
        )
        log.warning(
            "environment failed", extra={"session": session.id, "env": session.env, "error": f"{kind}: {message}"}
        )
        return session.broken

    # Ends.

    def _end(self, session: Session, cause: Cause, *, drop: bool = True) -> None:
        """Close a session; a call that is under way is told so, and its environment goes when it is done."""
        self.stats.ended[cause] += 1
        self.sessions.end(session, cause)
        log.info("session ended", extra={"session": session.id, "env": session.env, "cause": cause})
        if session.waiters is None:
            if drop:
                self.room.drop(session.worker, session.key)
            return
        waiters, session.waiters = session.waiters, []
        session.closing = cause
        told = gone(cause)
        for tell in waiters:
            tell(told)

    def _died(self, worker: Worker, how: str, at: frozenset[int]) -> None:
        """A worker is gone, and with it its sessions."""
        for twin in [self._forks.pop(key) for key in worker.sessions if key in self._forks]:
            self.sessions.end(twin, None)  # it never began
        for key in worker.sessions:
            session = self.sessions.at(key)
            if session is None:
                continue
            cause: Cause = "crashed" if key in at and session.waiters is not None else "worker"
            waiters = session.waiters
            session.waiters = None
            if waiters is not None:
                self.in_flight -= 1
            if session.closing is None:
                self.stats.ended[cause] += 1
                log.warning("session lost", extra={"session": session.id, "env": session.env, "cause": cause})
            self.sessions.end(session, cause)
            self.sessions.forget_key(key)
            told = gone(cause, how)
            for tell in waiters or ():
                tell(told)

    async def _sweep(self) -> None:
        """See to deadlines and leases."""
        while True:
            await asyncio.sleep(SWEEP)
            now = monotonic()
            limit = now - self.settings.step_timeout
            for session in self.sessions.known():
                if session.waiters is not None:
                    if session.began < limit:
                        self._give_up(session)
                elif session.until < now:
                    self._end(session, "expired")
            self.room.look()
            if len(self._rates) > 10_000:
                self._rates.clear()

    def _give_up(self, session: Session) -> None:
        waiters, session.waiters = session.waiters, None
        self.in_flight -= 1
        twin = self._forks.pop(session.key, None)
        if twin is not None:
            self.sessions.end(twin, None)
            twin.worker.sessions.discard(twin.key)
        if session.closing is None:
            self.stats.ended["deadline"] += 1
            log.warning("session lost", extra={"session": session.id, "env": session.env, "cause": "deadline"})
        self.sessions.end(session, "deadline")
        self.sessions.forget_key(session.key)
        self.room.give_up(session.worker, session.key)
        told = gone("deadline")
        for tell in waiters or ():
            tell(told)

    def _over_rate(self, owner: str, rate: float, calls: int) -> float:
        """Seconds until this owner may ask again; 0: now.

        A bucket that holds a second's worth; many calls at once are let through on credit.
        """
        now = monotonic()
        left, then = self._rates.get(owner, (max(1.0, rate), now))
        left = min(max(1.0, rate), left + (now - then) * rate)
        self._rates[owner] = (left - calls if left >= 1.0 else left, now)
        return 0.0 if left >= 1.0 else (1.0 - left) / rate

    def _unknown_env(self, name: str) -> Fault:
        from difflib import get_close_matches

        near = get_close_matches(name, self._envs, n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else " GET /v1/envs lists what is."
        return fault("unknown_env", f"{name[:100]!r} is not served here.{hint}", kind="UnknownEnv")


_WHATS: Final = {
    commands.MAKE: "create",
    commands.RESETS: "reset",
    commands.STEPS: "step",
    commands.ROW: "step",
    commands.FORKS: "fork",
    commands.RENDERS: "render",
    commands.SUGGEST_ACTION: "suggest_action",
}
_NUMBERED: Final = frozenset({commands.RESETS, commands.STEPS, commands.ROW, commands.FORKS})


def _named_again(ask: Reset | Step | Fork, session: Session) -> bool:
    """Does it have the id of the call before, and not the number of another?"""
    return bool(ask.id) and ask.id == session.last_id and (ask.seq is None or ask.seq == session.seq - 1)


def _one_a_class(ids: tuple[str, ...]) -> list[str]:
    """One id for every class that is served, so that importing is over before the first session."""
    from palestra import registry

    found: dict[str, str] = {}
    for env_id in ids:
        found.setdefault(registry.get_spec(env_id).entry_point, env_id)
    return list(found.values())

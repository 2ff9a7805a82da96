"""RayBackend: envs in actors on a Ray cluster, a batch of envs each, spread over its nodes.

An actor keeps a ProcessBackend of one worker, so a step that hangs, swells or kills its process is dealt with where it
happens. What an actor cannot survive is the loss of its node: its envs are reported failed and made again in another.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

from palestra.errors import BadValue, EnvFailed
from palestra.optional import require
from palestra.vector.backend import Backend
from palestra.vector.process import ProcessBackend
from palestra.workers.env_runner import factory_name
from palestra.workers.replay_log import ReplayLog
from palestra.workers.types import FRESH, Autoreset, Command, EnvFailure, Factory, Limits, Reply
from palestra.workers.wire import dump_factories

START = 180.0  # seconds for actors to be placed and to make their envs
GRACE = 5.0  # seconds for actors to close their envs


class Host:
    """What runs in an actor: a pool, and calls that wait for it without blocking the others."""

    def __init__(self) -> None:
        self._pool: ProcessBackend | None = None
        self._started = asyncio.Event()
        self._event = asyncio.Event()
        self._stop: Callable[[], None] | None = None

    async def start(
        self, factories: bytes, roots: Sequence[int], autoreset: Autoreset, limits: Limits, threads: int | None
    ) -> None:
        import pickle

        try:
            made: list[Factory] = pickle.loads(factories)  # noqa: S301  # from the driver
            self._pool = await asyncio.to_thread(
                ProcessBackend, made, roots, autoreset, limits, workers=1, threads=threads
            )
            self._stop = self._pool.watch(asyncio.get_running_loop(), self._event.set)
        finally:
            self._started.set()

    async def submit(self, commands: Sequence[Command], whole: bool) -> None:
        await self._started.wait()  # calls of one actor overlap
        if self._pool is not None:
            self._pool.submit(commands, whole)

    async def collect(self, commands: Sequence[Command] = (), whole: bool = False) -> list[Reply]:
        """At least one reply."""
        await self._started.wait()
        if self._pool is None:
            raise EnvFailed("an actor could not make its envs")
        if commands:
            self._pool.submit(commands, whole)
        while True:
            self._event.clear()
            replies = self._pool.collect(0.0)
            if replies:
                return replies
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pool.tick):
                    await self._event.wait()

    async def close(self) -> None:
        if self._pool is not None:
            if self._stop is not None:
                self._stop()
            await asyncio.to_thread(self._pool.close)


class _Berth:
    """An actor's place in the pool: its envs, the actor that has them now, and the call that waits for its replies."""

    def __init__(self, indices: list[int], factories: list[Factory], roots: list[int]) -> None:
        self.indices = indices
        self.factories = dump_factories(factories)
        self.roots = roots
        self.actor: Any = None
        self.starting: Any = None  # the call that makes its envs, until it has
        self.waiting: Any = None  # the call that will bring replies


class RayBackend(Backend):
    tick = 1.0

    def __init__(
        self,
        factories: Sequence[Factory],
        roots: Sequence[int],
        autoreset: Autoreset,
        limits: Limits,
        *,
        workers: int | None,
        threads: int | None,
        options: Mapping[str, Any],
    ) -> None:
        self._ray: Any = require("ray", extra="ray")
        self._connected = _connect(self._ray)
        self._limits = limits
        self._autoreset: Autoreset = autoreset
        self._threads = threads
        self._restarts = float(limits.restarts)
        self._listener: tuple[AbstractEventLoop, Callable[[], None]] | None = None
        self._done: list[Reply] = []
        self._under_way = 0
        self._closed = False
        processors = float(self._ray.cluster_resources().get("CPU", 1.0))
        count = min(workers or max(1, int(processors)), len(factories))
        # As many as were asked for must find room, or the last ones would wait for ever.
        share = min(1.0, math.floor(100 * processors / count) / 100)
        self._options = {"num_cpus": share, "scheduling_strategy": "SPREAD", **options}
        self._actor_class = self._ray.remote(max_restarts=0, max_task_retries=0)(Host)
        self._berths: list[_Berth] = []
        self._logs: dict[int, ReplayLog] = {}
        self._berth_of: dict[int, _Berth] = {}
        for number in range(count):
            indices = list(range(number, len(factories), count))
            berth = _Berth(indices, [factories[i] for i in indices], [roots[i] for i in indices])
            self._berths.append(berth)
            for i in indices:
                self._logs[i] = ReplayLog(i, factory_name(factories[i]), roots[i], autoreset)
                self._berth_of[i] = berth
        try:
            for berth in self._berths:
                self._launch(berth, self._options)
            self._await_start()
        except BaseException:
            self.close()
            raise

    def _launch(self, berth: _Berth, options: Mapping[str, Any]) -> None:
        berth.actor = self._actor_class.options(**options).remote()
        berth.starting = berth.actor.start.remote(
            berth.factories, berth.roots, self._autoreset, self._limits, self._threads
        )
        berth.waiting = None

    def _await_start(self) -> None:
        calls = [berth.starting for berth in self._berths]
        try:
            self._ray.get(calls, timeout=START)
        except self._ray.exceptions.GetTimeoutError as err:
            raise EnvFailed(f"the Ray cluster found no room for {len(calls)} actors within {START:g} s") from err
        except self._ray.exceptions.RayTaskError as err:
            raise err.cause from None
        for berth in self._berths:
            berth.starting = None

    # Commands out.

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        batches: dict[_Berth, list[Command]] = {}
        for command in commands:
            log = self._logs[command[0]]
            log.command = command
            batches.setdefault(self._berth_of[command[0]], []).append(command)
        self._under_way += len(commands)
        for berth, batch in batches.items():
            self._send(berth, batch, whole)

    def _send(self, berth: _Berth, commands: Sequence[Command], whole: bool = False) -> None:
        batch: list[Command] = []
        for command in commands:
            for index, kind, payload in self._logs[command[0]].needs(command):
                batch.append((berth.indices.index(index), kind, payload))
        if berth.waiting is None:
            berth.waiting = berth.actor.collect.remote(batch, whole)
            self._tell_when_done(berth.waiting)
        else:
            berth.actor.submit.remote(batch, whole)

    def _tell_when_done(self, call: Any) -> None:
        if self._listener is not None:
            loop, callback = self._listener

            def tell(_: object) -> None:
                with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                    loop.call_soon_threadsafe(callback)

            call.future().add_done_callback(tell)

    # Replies in.

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        while not self._done and self._under_way:
            left = None if end is None else max(0.0, end - monotonic())
            waiting = {berth.waiting: berth for berth in self._berths if berth.waiting is not None}
            ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=left, fetch_local=False)
            if ready and len(waiting) > 1:
                ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0, fetch_local=False)
            for call in ready:
                self._take(waiting[call], call)
            if left == 0.0:
                break
        done, self._done = self._done, []
        self._under_way -= len(done)
        return done

    def _take(self, berth: _Berth, call: Any) -> None:
        errors = self._ray.exceptions
        try:
            replies: list[Reply] = self._ray.get(call)
        except errors.RayTaskError as err:
            raise err.cause if isinstance(err.cause, EnvFailed) else EnvFailed(f"an actor failed: {err}") from err
        except errors.RayError as err:
            self._lost(berth, err)
            return
        for reply in replies:
            self._take_reply(berth.indices[reply[0]], reply)
        berth.waiting = None
        if any(self._logs[i].command is not None for i in berth.indices):
            berth.waiting = berth.actor.collect.remote()
            self._tell_when_done(berth.waiting)

    def _take_reply(self, index: int, reply: Reply) -> None:
        log = self._logs[index]
        command, log.command = log.command, None
        if command is None:
            return
        log.note(command, reply)
        log.actions.clear()  # a lost episode is reported, not played again
        info = reply[5]
        failure: EnvFailure | None = info.get("failure")
        if failure is not None:
            info = {**info, "failure": replace(failure, index=index)}
        self._restarts = min(self._restarts + 0.01, self._limits.restarts)
        self._done.append((index, *reply[1:5], info, reply[6]))

    def _lost(self, berth: _Berth, err: Exception) -> None:
        """An actor is gone: report its envs failed, and have another one make them again."""
        text = " ".join(str(err).split())
        message = f"its actor is gone: {text[:500]}"
        self._restarts -= 1
        if self._restarts < 0:
            raise EnvFailed(
                f"actors were lost too often, and no more than {self._limits.restarts} are replaced: {text}"
            )
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(berth.actor)  # out of reach is not dead
        # The cluster has become smaller: crowding the rest of it is better than waiting for room.
        self._launch(berth, {**self._options, "num_cpus": 0})
        again: list[Command] = []
        for index in berth.indices:
            log = self._logs[index]
            log.stale = True
            if log.command is not None and log.command[1] == FRESH:
                again.append(log.command)  # lost again before it began, which is no other failure
            elif log.command is not None:
                reply = log.blame(log.command, "node", message)
                if reply is not None:
                    self._done.append(reply)
                else:
                    again.append(log.command)
            elif log.episode >= 0 and not (log.over or log.pending):
                log.lost = log.failure("node", message, log.root, log.episode, None)
        if again:
            self._send(berth, again)

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        self._listener = (loop, callback)
        for berth in self._berths:
            if berth.waiting is not None:
                self._tell_when_done(berth.waiting)
        if self._done:
            loop.call_soon(callback)
        return self._unwatch

    def _unwatch(self) -> None:
        self._listener = None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        ray = self._ray
        if not ray.is_initialized():
            return
        actors = [berth.actor for berth in self._berths if berth.actor is not None]
        with suppress(ray.exceptions.RayError):
            calls = [actor.close.remote() for actor in actors]
            ray.wait(calls, num_returns=len(calls), timeout=GRACE)
        for actor in actors:
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)
        if self._connected:
            ray.shutdown()


def _connect(ray: Any) -> bool:
    """Join the cluster that is there; True where the connection is ours to end."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address="auto", log_to_driver=False)
    except ConnectionError as err:
        raise BadValue("there is no Ray cluster: call ray.init(), or start one with `ray start --head`") from err
    return True

"""Vector backend that runs envs in actors on a Ray cluster. Each actor runs several envs.

An actor has a ProcessBackend with one worker, which handles calls that hang, crash or use up memory. If the actor
itself is lost, for example with its node, its envs are reported as failed and created again in another actor.
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
from palestra.workers.types import REPLACE, Autoreset, Command, EnvFailure, Factory, Limits, Reply
from palestra.workers.wire import dump_factories

START_TIMEOUT = 180.0  # maximum seconds for actors to be scheduled and to create their envs
GRACE = 5.0  # maximum seconds for actors to close their envs


class EnvActor:
    """Ray actor that runs envs in a process backend. Its methods are asynchronous, so they do not block each other."""

    def __init__(self) -> None:
        self._backend: ProcessBackend | None = None
        self._started = asyncio.Event()
        self._event = asyncio.Event()
        self._stop: Callable[[], None] | None = None

    async def start(
        self, factories: bytes, roots: Sequence[int], autoreset: Autoreset, limits: Limits, threads: int | None
    ) -> None:
        import pickle

        try:
            unpickled: list[Factory] = pickle.loads(factories)  # noqa: S301  # sent by the driver
            self._backend = await asyncio.to_thread(
                ProcessBackend, unpickled, roots, autoreset, limits, workers=1, threads=threads
            )
            self._stop = self._backend.watch(asyncio.get_running_loop(), self._event.set)
        finally:
            self._started.set()

    async def submit(self, commands: Sequence[Command], whole: bool) -> None:
        await self._started.wait()  # `submit` may be called before `start` has finished
        if self._backend is not None:
            self._backend.submit(commands, whole)

    async def collect(self, commands: Sequence[Command] = (), whole: bool = False) -> list[Reply]:
        """Submit `commands`, wait for at least one reply, and return all replies that are ready."""
        await self._started.wait()
        if self._backend is None:
            raise EnvFailed("an actor could not create its envs")
        if commands:
            self._backend.submit(commands, whole)
        while True:
            self._event.clear()
            replies = self._backend.collect(0.0)
            if replies:
                return replies
            with suppress(TimeoutError):
                async with asyncio.timeout(self._backend.tick):
                    await self._event.wait()

    async def close(self) -> None:
        if self._backend is not None:
            if self._stop is not None:
                self._stop()
            await asyncio.to_thread(self._backend.close)


class _ActorHandle:
    """Group of envs, the actor that currently runs them, and that actor's pending calls."""

    def __init__(self, indices: list[int], factories: list[Factory], roots: list[int]) -> None:
        self.indices = indices
        self.factories = dump_factories(factories)
        self.roots = roots
        self.actor: Any = None
        self.starting: Any = None  # pending call that creates the envs, or None
        self.waiting: Any = None  # pending call that returns replies, or None


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
        self._in_flight = 0
        self._closed = False
        processors = float(self._ray.cluster_resources().get("CPU", 1.0))
        count = min(workers or max(1, int(processors)), len(factories))
        # All actors must fit into the cluster at the same time, because Ray would never schedule the remaining ones.
        share = min(1.0, math.floor(100 * processors / count) / 100)
        self._options = {"num_cpus": share, "scheduling_strategy": _strategy(self._ray), **options}
        self._actor_class = self._ray.remote(max_restarts=0, max_task_retries=0)(EnvActor)
        self._actors: list[_ActorHandle] = []
        self._logs: dict[int, ReplayLog] = {}
        self._actor_of: dict[int, _ActorHandle] = {}
        for number in range(count):
            indices = list(range(number, len(factories), count))
            handle = _ActorHandle(indices, [factories[i] for i in indices], [roots[i] for i in indices])
            self._actors.append(handle)
            for i in indices:
                self._logs[i] = ReplayLog(i, factory_name(factories[i]), roots[i], autoreset)
                self._actor_of[i] = handle
        try:
            for handle in self._actors:
                self._launch(handle, self._options)
            self._await_start()
        except BaseException:
            self.close()
            raise

    def _launch(self, handle: _ActorHandle, options: Mapping[str, Any]) -> None:
        handle.actor = self._actor_class.options(**options).remote()
        handle.starting = handle.actor.start.remote(
            handle.factories, handle.roots, self._autoreset, self._limits, self._threads
        )
        handle.waiting = None

    def _await_start(self) -> None:
        calls = [handle.starting for handle in self._actors]
        try:
            self._ray.get(calls, timeout=START_TIMEOUT)
        except self._ray.exceptions.GetTimeoutError as err:
            raise EnvFailed(f"the Ray cluster did not start {len(calls)} actors within {START_TIMEOUT:g} s") from err
        except self._ray.exceptions.RayTaskError as err:
            raise err.cause from None
        for handle in self._actors:
            handle.starting = None

    # Commands.

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        batches: dict[_ActorHandle, list[Command]] = {}
        for command in commands:
            log = self._logs[command[0]]
            log.command = command
            batches.setdefault(self._actor_of[command[0]], []).append(command)
        self._in_flight += len(commands)
        for handle, batch in batches.items():
            self._send(handle, batch, whole)

    def _send(self, handle: _ActorHandle, commands: Sequence[Command], whole: bool = False) -> None:
        batch: list[Command] = []
        for command in commands:
            index, kind, payload = self._logs[command[0]].prepare(command)
            batch.append((handle.indices.index(index), kind, payload))
        if handle.waiting is None:
            handle.waiting = handle.actor.collect.remote(batch, whole)
            self._notify_when_done(handle.waiting)
        else:
            handle.actor.submit.remote(batch, whole)

    def _notify_when_done(self, call: Any) -> None:
        if self._listener is not None:
            loop, callback = self._listener

            def notify(_: object) -> None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(callback)

            call.future().add_done_callback(notify)

    # Replies.

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        while not self._done and self._in_flight:
            left = None if end is None else max(0.0, end - monotonic())
            waiting = {handle.waiting: handle for handle in self._actors if handle.waiting is not None}
            ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=left, fetch_local=False)
            if ready and len(waiting) > 1:
                ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0, fetch_local=False)
            for call in ready:
                self._take(waiting[call], call)
            if left == 0.0:
                break
        finished, self._done = self._done, []
        self._in_flight -= len(finished)
        return finished

    def _take(self, handle: _ActorHandle, call: Any) -> None:
        errors = self._ray.exceptions
        try:
            replies: list[Reply] = self._ray.get(call)
        except errors.RayTaskError as err:
            raise err.cause if isinstance(err.cause, EnvFailed) else EnvFailed(f"an actor failed: {err}") from err
        except errors.RayError as err:
            self._lost(handle, err)
            return
        for reply in replies:
            self._take_reply(handle.indices[reply[0]], reply)
        handle.waiting = None
        if any(self._logs[i].command is not None for i in handle.indices):
            handle.waiting = handle.actor.collect.remote()
            self._notify_when_done(handle.waiting)

    def _take_reply(self, index: int, reply: Reply) -> None:
        log = self._logs[index]
        command, log.command = log.command, None
        if command is None:
            return
        log.record(command, reply)
        log.actions.clear()  # lost episodes are reported as failures and not replayed
        info = reply[5]
        failure: EnvFailure | None = info.get("failure")
        if failure is not None:
            info = {**info, "failure": replace(failure, index=index)}
        self._restarts = min(self._restarts + 0.01, self._limits.restarts)
        self._done.append((index, *reply[1:5], info, reply[6]))

    def _lost(self, handle: _ActorHandle, err: Exception) -> None:
        """Report a lost actor's envs as failed, and start a new actor for them."""
        text = " ".join(str(err).split())
        message = f"its actor was lost: {text[:500]}"
        self._restarts -= 1
        if self._restarts < 0:
            raise EnvFailed(f"more than {self._limits.restarts} actors were lost (see max_restarts); last: {text}")
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(handle.actor)  # the actor may be unreachable but still running
        # The cluster may have fewer CPUs now. The new actor reserves none, so that it does not wait for a free CPU.
        self._launch(handle, {**self._options, "num_cpus": 0})
        again: list[Command] = []
        for index in handle.indices:
            log = self._logs[index]
            log.stale = True
            if log.command is not None and log.command[1] == REPLACE:
                again.append(log.command)  # the failure was already recorded when the previous actor was lost
            elif log.command is not None:
                reply = log.blame(log.command, "node", message)
                if reply is not None:
                    self._done.append(reply)
                else:
                    again.append(log.command)
            elif log.episode >= 0 and not (log.over or log.pending_reset):
                log.lost = log.failure("node", message, log.root, log.episode, None)
        if again:
            self._send(handle, again)

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        self._listener = (loop, callback)
        for handle in self._actors:
            if handle.waiting is not None:
                self._notify_when_done(handle.waiting)
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
        actors = [handle.actor for handle in self._actors if handle.actor is not None]
        with suppress(ray.exceptions.RayError):
            calls = [actor.close.remote() for actor in actors]
            ray.wait(calls, num_returns=len(calls), timeout=GRACE)
        for actor in actors:
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)
        if self._connected:
            ray.shutdown()


def _strategy(ray: Any) -> Any:
    """Use the free bundles of the placement group that this process belongs to (`palestra train --ray`), if any."""
    group = ray.util.get_current_placement_group()
    if group is None:
        return "SPREAD"
    return ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(placement_group=group)


def _connect(ray: Any) -> bool:
    """Connect to the running cluster. Return False if this process was already connected."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address="auto", log_to_driver=False)
    except ConnectionError as err:
        raise BadValue("no Ray cluster is running; call ray.init(), or start one with `ray start --head`") from err
    return True

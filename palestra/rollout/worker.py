"""Process that plays episodes: agents and environments run here, and the model in the parent process."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from palestra.agents.base import Agent
from palestra.core import Env, Reset, Wrapper
from palestra.engines.client import ClientBatch, EngineClient, EngineInfo, ReplyBatch
from palestra.errors import BadValue, EnvFailed, UsageError
from palestra.registry import EnvFactory
from palestra.rollout.env_provider import InlineProvider
from palestra.rollout.episode import failure_of, run_episode
from palestra.rollout.heap import frozen_heap
from palestra.rollout.packing import pack_trajectory
from palestra.rollout.types import Task, Trajectory
from palestra.seeding import child_seed
from palestra.types import Step
from palestra.workers.wire import CHUNK, ActivityTable, FrameDecoder, encode_frame
from palestra.workers.worker_setup import connect_to_parent

LANES = 32  # maximum number of concurrent environment calls that are recorded
ENGINE = "engine"  # stands for the engine in pickled agents


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """Settings of `run_episode`, which are the same for all episodes of a rollout."""

    call_timeout: float | None = None
    step_timeout: float | None = None
    reset_timeout: float | None = None
    fail_on_long_prompt: bool = False


class Episode(NamedTuple):
    """An episode to play. Agents, factories and limits are sent once and then referred to by number."""

    number: int
    agent: int
    factory: int
    limits: int
    seed: int
    member: int
    options: dict[str, Any]
    attempt: int


class Commands(NamedTuple):
    """One message from the parent to a worker."""

    definitions: list[tuple[int, bytes]]  # (number, pickled object)
    episodes: list[Episode]
    cancelled: list[tuple[int, str | None]]  # (episode, reason to record in its trajectory)
    replies: ReplyBatch | None


class Results(NamedTuple):
    """One message from a worker to its parent."""

    requests: ClientBatch | None
    finished: list[tuple[int, bytes]]  # (episode, packed trajectory)
    rejected: list[tuple[int, UsageError]]  # (episode, error caused by the caller)


class RolloutWorker:
    """Plays the episodes that the parent sends, until the parent closes the connection."""

    def __init__(
        self, sock: socket.socket, decoder: FrameDecoder, activity: ActivityTable, info: EngineInfo | None
    ) -> None:
        self._sock = sock
        self._decoder = decoder
        self._calls = _CallLog(activity)
        self._engine = None if info is None else EngineClient(info, self._schedule)
        self._objects: dict[int, Any] = {}
        self._providers: dict[int, InlineProvider] = {}  # by limits
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancel_reasons: dict[int, str] = {}
        self._finished: list[tuple[int, bytes]] = []
        self._rejected: list[tuple[int, UsageError]] = []
        self._scheduled = False

    async def serve(self, messages: list[Commands]) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        for message in messages:
            self._handle(message)
        self._loop.add_reader(self._sock, self._read)
        await self._closed
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for provider in self._providers.values():
            await provider.aclose()

    def _read(self) -> None:
        try:
            data = self._sock.recv(CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            self._close()
            return
        self._decoder.feed(data)
        for message in self._decoder.messages():
            self._handle(message)

    def _close(self) -> None:
        self._loop.remove_reader(self._sock)
        if not self._closed.done():
            self._closed.set_result(None)

    def _handle(self, commands: Commands) -> None:
        if commands.replies is not None and self._engine is not None:
            self._engine.receive(commands.replies)
        for number, data in commands.definitions:
            self._objects[number] = self._load(data)
        for episode in commands.episodes:
            self._tasks[episode.number] = self._loop.create_task(self._play(episode))
        for number, reason in commands.cancelled:
            task = self._tasks.get(number)
            if task is not None:
                if reason is not None:
                    self._cancel_reasons[number] = reason
                task.cancel()

    def _load(self, data: bytes) -> Any:
        try:
            return _Unpickler(data, self._engine).load()
        except Exception as err:  # noqa: BLE001  # reported by the episodes that need the object
            return BadValue(f"a rollout worker cannot load the agent or environment: {type(err).__name__}: {err}")

    async def _play(self, episode: Episode) -> None:
        number = episode.number
        task = Task(env_id="", seed=episode.seed, member=episode.member, options=episode.options)
        try:
            self._finish(number, task, await self._attempt(episode, task))
        except UsageError as err:
            self._rejected.append((number, _picklable(err)))
        except Exception as err:  # noqa: BLE001  # recorded in the trajectory
            self._finish(number, task, Trajectory.of(task, failure=failure_of(err, "env")))
        finally:
            del self._tasks[number]
            self._cancel_reasons.pop(number, None)
            self._schedule()

    async def _attempt(self, episode: Episode, task: Task) -> Trajectory:
        agent: Agent = self._object(episode.agent)
        factory: EnvFactory = self._object(episode.factory)[0]
        limits: EpisodeLimits = self._object(episode.limits)
        provider = self._providers.get(episode.limits)
        if provider is None:
            provider = InlineProvider(step_timeout=limits.step_timeout, reset_timeout=limits.reset_timeout)
            self._providers[episode.limits] = provider
        try:
            with self._calls.record(episode.number):
                env = await provider.acquire(factory)
        except UsageError:
            raise
        except (Exception, SystemExit) as err:  # noqa: BLE001  # recorded in the trajectory
            return Trajectory.of(task, attempt=episode.attempt, failure=failure_of(err, "env"))
        reusable = False
        try:
            trajectory = await run_episode(
                _RecordedEnv(env, self._calls, episode.number),
                agent,
                task,
                agent_seed=child_seed(task.seed, "agent", task.member),
                call_timeout=limits.call_timeout,
                step_timeout=provider.step_timeout,
                reset_timeout=provider.reset_timeout,
                attempt=episode.attempt,
                fail_on_long_prompt=limits.fail_on_long_prompt,
                cancel_reason=lambda: self._cancel_reasons.get(episode.number),
            )
            reusable = trajectory.failure is None
        finally:
            await provider.release(env, reusable=reusable)
        return trajectory

    def _object(self, number: int) -> Any:
        loaded = self._objects[number]
        if isinstance(loaded, BadValue):
            raise loaded
        return loaded

    def _finish(self, number: int, task: Task, trajectory: Trajectory) -> None:
        try:
            data = pack_trajectory(trajectory)
        except Exception as err:  # noqa: BLE001  # the environment returned an object that cannot be pickled
            error = EnvFailed(f"the episode cannot be sent to another process: {type(err).__name__}: {err}")
            data = pack_trajectory(Trajectory.of(task, attempt=trajectory.attempts, failure=failure_of(error, "env")))
        self._finished.append((number, data))

    def _schedule(self) -> None:
        """Send results after all runnable tasks have run, so that one message contains all of their results."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        requests = None if self._engine is None else self._engine.take_batch()
        results = Results(requests, self._finished, self._rejected)
        self._finished, self._rejected = [], []
        try:
            self._sock.sendall(encode_frame(results))
        except OSError:
            self._close()  # the parent has exited


class _CallLog:
    """Records in shared memory which episodes are calling their environment, in case this process crashes.

    Calls run one at a time, except those of environments that run in threads.
    """

    def __init__(self, activity: ActivityTable) -> None:
        self._activity = activity
        self._lanes = list(range(activity.lanes))

    @contextmanager
    def record(self, episode: int) -> Iterator[None]:
        lane = self._lanes.pop() if self._lanes else None
        if lane is None:
            yield
            return
        self._activity.start_untimed(lane, episode)
        try:
            yield
        finally:
            self._activity.end(lane)
            self._lanes.append(lane)


class _RecordedEnv(Wrapper):
    """Environment whose calls are recorded."""

    def __init__(self, env: Env, calls: _CallLog, episode: int) -> None:
        super().__init__(env)
        self._calls = calls
        self._episode = episode

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        with self._calls.record(self._episode):
            return await self.env.areset(seed=seed, options=options)

    async def astep(self, action: str) -> Step:
        with self._calls.record(self._episode):
            return await self.env.astep(action)


class _Unpickler(pickle.Unpickler):
    """Unpickles an agent with this process's engine."""

    def __init__(self, data: bytes, engine: EngineClient | None) -> None:
        super().__init__(BytesIO(data))
        self._engine = engine

    def persistent_load(self, pid: Any) -> Any:
        if pid == ENGINE and self._engine is not None:
            return self._engine
        raise pickle.UnpicklingError(f"unknown object {pid!r}")


def _picklable(error: UsageError) -> UsageError:
    """Return the error, or one with the same message if the parent might not be able to import its class."""
    return error if type(error).__module__ == UsageError.__module__ else BadValue(str(error))


def main(sock_fd: int, life_fd: int, activity_fd: int) -> None:
    """Entry point of the process."""
    sock, decoder, messages = connect_to_parent(sock_fd, life_fd, activity_fd)
    if messages:
        info: EngineInfo | None = messages[0]
        with frozen_heap():
            asyncio.run(RolloutWorker(sock, decoder, ActivityTable(LANES, activity_fd), info).serve(messages[1:]))

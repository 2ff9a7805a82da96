"""Play episodes in several processes that share one engine.

Python runs one thread at a time. With a small model on a GPU, agents and environments take longer than the model, so
worker processes run them, and this process only runs the engine. Messages contain the requests, replies and episodes of
many conversations.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from itertools import count
from typing import Any, Self
from weakref import WeakKeyDictionary

from palestra.agents.base import Agent
from palestra.engines.base import Engine
from palestra.engines.local.channel import EngineChannel
from palestra.engines.local.engine import LocalEngine
from palestra.errors import BadValue, EnvFailed, InfrastructureError
from palestra.optional import require
from palestra.registry import EnvFactory
from palestra.rollout.episode import failure_of
from palestra.rollout.packing import unpack_trajectory
from palestra.rollout.types import Failure, Task, Trajectory
from palestra.rollout.worker import ENGINE, LANES, Commands, Episode, EpisodeLimits, Results, main
from palestra.workers.wire import dump_factories
from palestra.workers.worker_process import WorkerProcess, end_workers

logger = logging.getLogger(__name__)

MAX_MOVES = 8  # maximum number of times that an episode starts again because another episode crashed its process
CLOSE_SECONDS = 2.0  # time for workers to close their environments before they are killed


class RolloutWorkers:
    """Pool of `workers` processes that play episodes with agents that use `engine` (or no engine).

    ```
    async with RolloutWorkers(engine, workers=8) as pool:
        await collect(agent, "game:Wordle-v0-easy", episodes=1024, concurrency=1024, rollout_workers=pool)
    ```

    If an environment crashes its worker, its episode fails with an infrastructure error, as do other episodes whose
    environments were running in threads at that time. The worker is replaced, and its remaining episodes start again.
    Agents must not be changed after their first episode.
    """

    def __init__(self, engine: Engine | None, *, workers: int) -> None:
        if workers < 1:
            raise BadValue(f"rollout_workers must be at least 1, got {workers}")
        if engine is not None and not (isinstance(engine, LocalEngine) and engine.tokenizer is not None):
            raise BadValue(
                f"rollout_workers needs a LocalEngine with a tokenizer, got {type(engine).__name__}; other engines run "
                "outside this process, so start several processes instead, each with its own client"
            )
        self.engine = engine
        self._closed = False
        self._workers = [_Worker(engine) for _ in range(workers)]
        self._numbers = count()
        self._definitions: dict[Any, tuple[int, bytes]] = {}
        self._agents: WeakKeyDictionary[Agent, tuple[int, bytes]] = WeakKeyDictionary()
        self._share = 0  # expected number of concurrent episodes per worker
        self._current = self._workers[0]  # worker that got the last episode
        # Arguments of the last episode and their definitions.
        self._last: tuple[Agent, EnvFactory, EpisodeLimits, list[tuple[int, bytes]]] | None = None

    async def __aenter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all workers; episodes in progress fail. Idempotent."""
        self._closed = True
        processes = [process for worker in self._workers if (process := worker.stop()) is not None]
        await asyncio.to_thread(end_workers, processes, CLOSE_SECONDS)

    def expect(self, episodes: int) -> None:
        """Prepare for a rollout with this many concurrent episodes.

        Its first episodes are sent to one worker after the other, which starts them while others are prepared.
        """
        self._share = -(-episodes // len(self._workers))

    async def play(
        self,
        agent: Agent,
        factory: EnvFactory,
        task: Task,
        *,
        limits: EpisodeLimits,
        attempt: int = 1,
        cancel_reason: Callable[[], str | None] = lambda: None,
    ) -> Trajectory:
        """Play one episode in one of the workers; see `run_episode`."""
        definitions = self._define(agent, factory, limits)
        agent_number, factory_number, limits_number = (definition[0] for definition in definitions)
        lost = _WorkerLost("the rollout workers are closed")
        for _ in range(MAX_MOVES):
            if self._closed:
                break
            worker = self._select_worker()
            number = next(self._numbers)
            numbers = (number, agent_number, factory_number, limits_number)
            episode = Episode(*numbers, task.seed, task.member, dict(task.options), attempt)
            future = worker.play(episode, task, definitions, self._share)
            try:
                return await asyncio.shield(future)
            except _WorkerLost as err:
                lost = err
            except asyncio.CancelledError:
                reason = cancel_reason()
                worker.cancel(number, reason)
                if reason is None:
                    raise
                return await _cancelled_episode(future, task, attempt, reason)
        return Trajectory.of(task, attempt=attempt, failure=failure_of(lost, lost.boundary))

    def _select_worker(self) -> _Worker:
        """Return the worker with the fewest episodes, or the last one until it has its share."""
        if not self._current.has_unsent_episodes or len(self._current.episodes) >= self._share:
            self._current = min(self._workers, key=lambda worker: len(worker.episodes))
        return self._current

    def _define(self, agent: Agent, factory: EnvFactory, limits: EpisodeLimits) -> list[tuple[int, bytes]]:
        last = self._last
        if last is None or last[0] is not agent or last[1] is not factory or last[2] is not limits:
            definitions = [self._agent(agent), self._factory(factory), self._limits(limits)]
            self._last = last = agent, factory, limits, definitions
        return last[3]

    def _agent(self, agent: Agent) -> tuple[int, bytes]:
        if agent not in self._agents:
            self._agents[agent] = next(self._numbers), dump_agent(agent, self.engine)
        return self._agents[agent]

    def _factory(self, factory: EnvFactory) -> tuple[int, bytes]:
        key = factory.key
        if key not in self._definitions:
            self._definitions[key] = next(self._numbers), dump_factories([factory])
        return self._definitions[key]

    def _limits(self, limits: EpisodeLimits) -> tuple[int, bytes]:
        if limits not in self._definitions:
            self._definitions[limits] = next(self._numbers), pickle.dumps(limits)
        return self._definitions[limits]


async def _cancelled_episode(future: asyncio.Future[Trajectory], task: Task, attempt: int, reason: str) -> Trajectory:
    """Return the turns of a canceled episode, or none if its worker does not reply soon."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            return await future
    except (TimeoutError, _WorkerLost):
        failure = Failure(boundary="budget", kind="OutOfTime", message=reason)
        return Trajectory.of(task, attempt=attempt, failure=failure)


class _WorkerLost(InfrastructureError):
    """The process ended while it played this episode, but because of another one."""


class _Worker:
    """One worker in the pool: its process, which is replaced if it ends, and the episodes that it plays."""

    def __init__(self, engine: LocalEngine | None) -> None:
        self._engine = engine
        self._process: WorkerProcess | None = None
        self._channel: EngineChannel | None = None
        self._known: set[int] = set()  # definitions that the process has received
        self._commands = Commands([], [], [], None)
        self._scheduled = False
        self.episodes: dict[int, tuple[Task, int, asyncio.Future[Trajectory]]] = {}

    def start(self) -> WorkerProcess:
        """Start the process if it is not running."""
        if self._process is None:
            self._loop = asyncio.get_running_loop()
            self._channel = None if self._engine is None else EngineChannel(self._engine, self._schedule)
            info = None if self._channel is None else self._channel.info
            self._process = WorkerProcess(main, info, lanes=LANES)
            self._known.clear()
            self._loop.add_reader(self._process.sock, self._read)
            self._flush_later()
        return self._process

    def stop(self, reason: str = "the rollout workers were closed") -> WorkerProcess | None:
        """Disconnect from the process and return it, so that the caller can end it. Its episodes raise an error."""
        process, self._process = self._process, None
        if process is not None:
            self._loop.remove_reader(process.sock)
            self._loop.remove_writer(process.sock)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._commands = Commands([], [], [], None)
        episodes, self.episodes = self.episodes, {}
        for _, _, future in episodes.values():
            if not future.done():
                future.set_exception(_WorkerLost(reason))
        return process

    @property
    def has_unsent_episodes(self) -> bool:
        return bool(self._commands.episodes)

    def play(
        self, episode: Episode, task: Task, definitions: list[tuple[int, bytes]], share: int
    ) -> asyncio.Future[Trajectory]:
        """Send an episode together with others: immediately if the worker then plays `share` episodes."""
        self.start()
        for definition in definitions:
            if definition[0] not in self._known:
                self._known.add(definition[0])
                self._commands.definitions.append(definition)
        self._commands.episodes.append(episode)
        future: asyncio.Future[Trajectory] = self._loop.create_future()
        self.episodes[episode.number] = task, episode.attempt, future
        if len(self.episodes) == share:
            self._send_now()
        else:
            self._schedule()
        return future

    def cancel(self, number: int, reason: str | None) -> None:
        """Cancel an episode. With a `reason`, its trajectory ends with a failure; otherwise it is dropped."""
        if number in self.episodes:
            self._commands.cancelled.append((number, reason))
            self._schedule()
            if reason is None:
                del self.episodes[number]

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        self._send_now()

    def _send_now(self) -> None:
        process, commands = self._process, self._commands
        if process is None:
            return
        replies = None if self._channel is None else self._channel.take_batch()
        self._commands = Commands([], [], [], None)
        process.send(commands._replace(replies=replies))
        self._flush_later()

    def _flush_later(self) -> None:
        """Send the rest of a message when the socket has room for it."""
        process = self._process
        if process is None:
            return
        process.flush()
        if process.has_unsent:
            self._loop.add_writer(process.sock, self._flush_later)
        else:
            self._loop.remove_writer(process.sock)

    def _read(self) -> None:
        process = self._process
        if process is None:
            return
        for results in process.read():
            self._handle(results)
        if not process.alive:
            self._process_ended(process)

    def _handle(self, results: Results) -> None:
        if results.requests is not None and self._channel is not None:
            self._channel.receive(results.requests)
        for number, data in results.finished:
            entry = self.episodes.pop(number, None)
            if entry is not None and not entry[2].done():
                entry[2].set_result(_unpack(*entry[:2], data))
        for number, error in results.rejected:
            entry = self.episodes.pop(number, None)
            if entry is not None and not entry[2].done():
                entry[2].set_exception(error)

    def _process_ended(self, process: WorkerProcess) -> None:
        """Fail the episodes whose environments were running, and stop, so that the others restart in another worker."""
        process.kill()
        process.process.wait()
        message = f"the rollout worker process {process.pid} ended with {process.exit_status}"
        logger.warning("%s while it played %d episodes", message, len(self.episodes))
        for number in process.activity.running():
            if number in self.episodes:
                task, attempt, future = self.episodes.pop(number)
                failure = failure_of(EnvFailed(message), "env")
                if not future.done():
                    future.set_result(Trajectory.of(task, attempt=attempt, failure=failure))
        self.stop(message)
        process.release()


def _unpack(task: Task, attempt: int, data: bytes) -> Trajectory:
    try:
        return unpack_trajectory(task, data)
    except Exception as err:  # noqa: BLE001  # an object of a class that this process cannot import
        error = EnvFailed(f"the episode cannot be read in this process: {type(err).__name__}: {err}")
        return Trajectory.of(task, attempt=attempt, failure=failure_of(error, "env"))


class _AgentPickler(pickle.Pickler):
    """Pickles an agent without its engine."""

    def __init__(self, file: BytesIO, engine: Engine | None) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._engine = engine

    def persistent_id(self, obj: Any) -> Any:
        return ENGINE if obj is self._engine and obj is not None else None


def dump_agent(agent: Agent, engine: Engine | None) -> bytes:
    """Pickle an agent for a worker; raise BadValue if that is not possible."""
    file = BytesIO()
    with suppress(pickle.PicklingError, AttributeError, TypeError):
        _AgentPickler(file, engine).dump(agent)
        if b"__main__" not in file.getvalue():
            return file.getvalue()
    cloudpickle = require("cloudpickle", extra="vector")

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc, name-defined]  # untyped
        def persistent_id(self, obj: Any) -> Any:
            return ENGINE if obj is engine and obj is not None else None

    file = BytesIO()
    try:
        ByValue(file).dump(agent)
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise BadValue(
            f"this agent cannot be sent to another process: {err}. Play in this process (rollout_workers=0), or define "
            "the agent in an importable module"
        ) from err
    return file.getvalue()

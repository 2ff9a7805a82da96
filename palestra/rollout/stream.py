"""Run many episodes concurrently and yield each trajectory as soon as its episode ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack

from palestra.agents.base import Agent
from palestra.core import Env
from palestra.errors import BadValue, UsageError
from palestra.registry import EnvFactory, get_spec
from palestra.rollout.env_provider import EnvBackend, EnvProvider, TaskFactories, create_env_provider
from palestra.rollout.episode import failure_of, run_episode
from palestra.rollout.heap import frozen_heap
from palestra.rollout.types import Task, Trajectory
from palestra.rollout.worker import EpisodeLimits
from palestra.rollout.worker_pool import RolloutWorkers
from palestra.seeding import child_seed, fresh_seed

# An env name (id, module:Class or URL), a function that returns an env, a list of tasks, or an asynchronous iterator of
# tasks.
EnvSource = str | Callable[..., Env] | list[Task] | AsyncIterator[Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits after which no further episode starts. Running episodes finish, except when `seconds` is exceeded."""

    episodes: int | None = None
    turns: int | None = None
    tokens: int | None = None  # sampled tokens
    seconds: float | None = None  # wall-clock time; running episodes end as failures with boundary "budget"


class RolloutOptions(TypedDict, total=False):
    """Keyword arguments for `stream` and `collect`."""

    episodes: int  # number of episodes; omit it with a list of tasks
    group_size: int  # episodes per group, which share a seed (default 1)
    concurrency: int  # maximum number of episodes at a time (default 64)
    seed: int | None  # seed from which all other seeds are derived; None selects a random seed
    kwargs: Mapping[str, Any]  # keyword arguments for the env
    wrappers: Sequence[Any]  # callables or names, as in `make`; the first one is the innermost
    budget: Budget
    retries: int  # additional attempts for a failed episode, each in a new env (default 2)
    give_up_after: int  # stop starting episodes after this many consecutive failures (default 64)
    call_timeout: float | None  # maximum seconds per reset, step or reply; None disables the limit
    env_backend: EnvBackend  # where envs run: "inline" (this process, default), "thread", "process" or "ray"
    env_workers: int | None  # number of worker processes or Ray actors (default: number of CPUs)
    step_timeout: float | None  # maximum seconds per env step (default: call_timeout); "process" kills hung envs
    reset_timeout: float | None  # maximum seconds per env reset, including its construction (default: step_timeout)
    fail_on_long_prompt: bool  # treat a first prompt that exceeds the context as a failure (default False)
    env_provider: EnvProvider  # replaces the four env options above; may be shared by rollouts; closed by the caller
    # Number of processes that play episodes with an engine in this process, or a pool of such processes, which the
    # caller closes (default 0: play in this process).
    rollout_workers: int | RolloutWorkers


class Stream:
    """Asynchronous iterator of trajectories. Leaving the `async with` block stops all episodes and closes every env.

    ```
    async with palestra.rollout.stream(agent, "game:Wordle-v0-easy", episodes=100) as trajectories:
        async for trajectory in trajectories: ...
    ```
    """

    def __init__(self, agent: Agent, env: EnvSource, options: RolloutOptions) -> None:
        self.agent = agent
        self._task_source = env if isinstance(env, AsyncIterator) else None
        self.tasks = [] if isinstance(env, AsyncIterator) else _tasks(env, options)
        self.concurrency = options.get("concurrency", 64)
        if self.concurrency < 1:
            raise BadValue(f"concurrency must be at least 1, got {self.concurrency}")
        self.budget = options.get("budget") or Budget()
        self.retries = options.get("retries", 2)
        self.give_up_after = options.get("give_up_after", 64)
        self.call_timeout = options.get("call_timeout")
        self._fail_on_long_prompt = options.get("fail_on_long_prompt", False)
        self.stopped: str | None = None  # reason why some tasks were not started
        self._factories = TaskFactories(env if callable(env) else None, options.get("wrappers", ()))
        self._source_lock = asyncio.Lock()  # asynchronous iterators support only one `anext` at a time
        self._pending: Iterator[Task] = iter(self.tasks)
        self._next_prepared = min(self.concurrency, len(self.tasks))  # index of the next task to prepare an env for
        provider = options.get("env_provider")
        self._owns_provider = provider is None
        self._provider = _create_provider(options, self._num_slots) if provider is None else provider
        self._workers, self._owns_workers = _rollout_workers(agent, options)
        self._limits = EpisodeLimits(
            call_timeout=self.call_timeout,
            step_timeout=self._provider.step_timeout,
            reset_timeout=self._provider.reset_timeout,
            fail_on_long_prompt=self._fail_on_long_prompt,
        )
        self._spent = {"episodes": 0, "turns": 0, "tokens": 0}
        self._consecutive_failures = 0
        self._timeout_reason: str | None = None
        self._closing = False
        self._iterator: AsyncGenerator[Trajectory, None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._iterator is not None:
            await self._iterator.aclose()

    def __aiter__(self) -> AsyncGenerator[Trajectory, None]:
        if self._iterator is None:
            self._iterator = self._run()
        return self._iterator

    async def _run(self) -> AsyncGenerator[Trajectory, None]:
        done: asyncio.Queue[Trajectory | BaseException | None] = asyncio.Queue()
        if self._workers is not None:
            self._workers.expect(self._num_slots)
        workers = [asyncio.create_task(self._work(done)) for _ in range(self._num_slots)]
        clock = asyncio.create_task(self._clock(workers)) if self.budget.seconds is not None else None
        running = len(workers)
        with frozen_heap():
            try:
                while running:
                    item = await done.get()
                    if item is None:
                        running -= 1
                    elif isinstance(item, BaseException):
                        raise item
                    else:
                        yield item
            finally:
                self._closing = True  # a worker whose cancellation was swallowed must not start another task
                background = workers if clock is None else [*workers, clock]
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                if self._workers is not None and self._owns_workers:
                    await self._workers.aclose()
                if self._owns_provider:
                    await self._provider.aclose()

    @property
    def _num_slots(self) -> int:
        """Number of episodes that can run at a time."""
        return self.concurrency if self._task_source is not None else min(self.concurrency, len(self.tasks))

    async def _work(self, done: asyncio.Queue[Trajectory | BaseException | None]) -> None:
        """Run tasks and put their trajectories into `done`, followed by None or the exception that ended the loop."""
        try:
            while (task := await self._next_task()) is not None:
                done.put_nowait(await self._run_task(task))
        except BaseException as err:  # noqa: BLE001  # re-raised in the task of the caller
            done.put_nowait(None if isinstance(err, asyncio.CancelledError) else err)
            return
        done.put_nowait(None)

    async def _next_task(self) -> Task | None:
        if self.stopped is None:
            for unit, spent in self._spent.items():
                limit = getattr(self.budget, unit)
                if limit is not None and spent >= limit:
                    self.stopped = f"the budget of {limit} {unit} is used up"
        if self.stopped is not None or self._closing:
            return None
        if self._task_source is None:
            task = next(self._pending, None)
        else:
            async with self._source_lock:
                task = await anext(self._task_source, None)
        if task is not None:
            self._spent["episodes"] += 1
        return task

    async def _run_task(self, task: Task) -> Trajectory:
        """Run `task` and return its trajectory; retry a failed episode in a new env."""
        attempt = 1
        while True:
            trajectory = await self._attempt(task, attempt)
            self._spent["turns"] += len(trajectory.turns)
            if self.budget.tokens is not None:
                self._spent["tokens"] += trajectory.sampled_tokens
            failure = trajectory.failure
            if failure is None:
                self._consecutive_failures = 0
                return trajectory
            if attempt > self.retries or self.stopped is not None or self._closing:
                self._consecutive_failures += 1
                if self._consecutive_failures >= self.give_up_after and self.stopped is None:
                    count = self._consecutive_failures
                    self.stopped = (
                        f"{count} consecutive episodes failed; the last with {failure.kind}: {failure.message}"
                    )
                return trajectory
            attempt += 1

    async def _attempt(self, task: Task, attempt: int) -> Trajectory:
        if self._workers is not None:
            return await self._workers.play(
                self.agent,
                self._factories.of(task),
                task,
                limits=self._limits,
                attempt=attempt,
                cancel_reason=lambda: self._timeout_reason,
            )
        try:
            env = await self._provider.acquire(self._factories.of(task))
        except UsageError:
            raise
        except (Exception, SystemExit) as err:  # noqa: BLE001  # recorded in the trajectory
            return Trajectory.of(task, attempt=attempt, failure=failure_of(err, "env"))
        reusable = False
        try:
            trajectory = await run_episode(
                env,
                self.agent,
                task,
                agent_seed=child_seed(task.seed, "agent", task.member),
                call_timeout=self.call_timeout,
                step_timeout=self._provider.step_timeout,
                reset_timeout=self._provider.reset_timeout,
                attempt=attempt,
                fail_on_long_prompt=self._fail_on_long_prompt,
                cancel_reason=lambda: self._timeout_reason,
                on_reset=lambda: self._prepare_later_task(env, task),
            )
            reusable = trajectory.failure is None
        finally:
            await self._provider.release(env, reusable=reusable)
        return trajectory

    def _prepare_later_task(self, env: Env, task: Task) -> None:
        """Call `Env.prepare` with a later task's seed, so that expensive resets overlap with running episodes."""
        if self._next_prepared >= len(self.tasks):
            return
        later = self.tasks[self._next_prepared]
        self._next_prepared += 1
        factory = self._factories.of(later)
        target = env if factory is self._factories.of(task) else self._provider.idle_env(factory)
        if target is not None and not later.options:
            target.prepare(later.seed)

    async def _clock(self, workers: list[asyncio.Task[None]]) -> None:
        """Cancel all episodes when `budget.seconds` have passed; each is recorded as a failure."""
        await asyncio.sleep(self.budget.seconds or 0.0)
        self.stopped = self._timeout_reason = f"the time limit of {self.budget.seconds:g} s was reached"
        for worker in workers:
            worker.cancel()


def stream(agent: Agent, env: EnvSource, **options: Unpack[RolloutOptions]) -> Stream:
    """Return an asynchronous iterator over trajectories; see `collect` for the options."""
    return Stream(agent, env, options)


def _tasks(env: EnvSource, options: RolloutOptions) -> list[Task]:
    episodes, group_size = options.get("episodes"), options.get("group_size", 1)
    kwargs = options.get("kwargs") or {}
    if isinstance(env, list):
        if episodes is not None or kwargs or group_size != 1:
            raise BadValue("episodes, kwargs and group_size cannot be combined with a list of tasks; set them per Task")
        return env
    if episodes is None or episodes < 1:
        raise BadValue(f"episodes must be at least 1, got {episodes!r}")
    if group_size < 1 or episodes % group_size:
        raise BadValue(f"episodes must be a multiple of group_size, got {episodes} and {group_size}")
    seed = options.get("seed")
    root = fresh_seed() if seed is None else seed
    if isinstance(env, str):
        get_spec(env)  # raise an error for an unknown name now, instead of failing every episode
        name = env
    elif isinstance(env, EnvFactory):
        name = env.name
    else:
        name = getattr(env, "__qualname__", repr(env))
    return [
        Task(env_id=name, kwargs=kwargs, seed=child_seed(root, "task", group), group=group, member=member)
        for group in range(episodes // group_size)
        for member in range(group_size)
    ]


def _rollout_workers(agent: Agent, options: RolloutOptions) -> tuple[RolloutWorkers | None, bool]:
    """Return the worker processes that play the episodes, if any, and whether the stream must close them."""
    workers = options.get("rollout_workers", 0)
    if workers == 0:
        return None, False
    if options.get("env_backend", "inline") != "inline" or "env_provider" in options:
        raise BadValue("rollout_workers run their environments themselves; remove env_backend and env_provider")
    if isinstance(workers, RolloutWorkers):
        return workers, False
    return RolloutWorkers(getattr(agent, "engine", None), workers=workers), True


def _create_provider(options: RolloutOptions, capacity: int) -> EnvProvider:
    backend = options.get("env_backend", "inline")
    step_timeout = options.get("step_timeout")
    if step_timeout is None and backend != "inline":
        step_timeout = options.get("call_timeout")  # the workers enforce this limit and are replaced if an env hangs
    return create_env_provider(
        backend,
        capacity=max(1, capacity),
        workers=options.get("env_workers"),
        step_timeout=step_timeout,
        reset_timeout=options.get("reset_timeout"),
    )

"""Tasks -> trajectories, each as soon as it is over: workers without barriers, a pool of envs, retries, budgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack

from palestra.agents.base import Agent
from palestra.core import Env
from palestra.errors import BadValue, InfrastructureError
from palestra.registry import get_spec, make
from palestra.rollout.episode import play
from palestra.rollout.types import Failure, Task, Trajectory
from palestra.seeding import child_seed, fresh_seed

# An id, what makes an env, or tasks that name their ids: a list, or one after another as they come to be known.
EnvSource = str | Callable[..., Env] | list[Task] | AsyncIterator[Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When to start no more episodes. What runs is finished, except that `seconds` ends it."""

    episodes: int | None = None
    turns: int | None = None
    tokens: int | None = None  # sampled
    seconds: float | None = None


class Options(TypedDict, total=False):
    """What `stream` and `collect` take beside agent and env."""

    episodes: int  # how many; a list of tasks says so itself
    group_size: int  # 1; episodes of one group share a seed
    concurrency: int  # 64
    seed: int | None  # all seeds follow from it; None: drawn
    kwargs: Mapping[str, Any]  # keywords of the env
    wrappers: Sequence[Callable[[Env], Env]]  # the first innermost
    budget: Budget
    retries: int  # 2; on a fresh env each
    give_up_after: int  # 64 failures in a row, and no more episodes are started
    call_timeout: float | None  # seconds for one reset, step or reply; None: as long as it takes


class Stream:
    """Plays episodes while it is iterated over; leaving the loop early stops them and closes every env.

    ```
    async with palestra.rollout.stream(agent, "game:Wordle-v0-easy", episodes=100) as trajectories:
        async for trajectory in trajectories: ...
    ```
    """

    def __init__(self, agent: Agent, env: EnvSource, options: Options) -> None:
        self.agent = agent
        self._coming = env if isinstance(env, AsyncIterator) else None
        self.tasks = [] if isinstance(env, AsyncIterator) else _tasks(env, options)  # those known from the start
        self.concurrency = options.get("concurrency", 64)
        if self.concurrency < 1:
            raise BadValue(f"concurrency is at least 1, got {self.concurrency}")
        self.budget = options.get("budget") or Budget()
        self.retries = options.get("retries", 2)
        self.give_up_after = options.get("give_up_after", 64)
        self.call_timeout = options.get("call_timeout")
        self.stopped: str | None = None  # why not all tasks were started
        self._source = env if callable(env) else None
        self._turnstile = asyncio.Lock()  # a source of tasks is asked by one worker at a time
        self._wrappers = options.get("wrappers", ())
        self._todo: Iterator[Task] = iter(self.tasks)
        self._foretold = min(self.concurrency, len(self.tasks))  # tasks begun, or told to an env ahead of their turn
        self._idle: dict[str, list[Env]] = {}  # envs that finished well and may play again
        self._open: set[Env] = set()
        self._spent = {"episodes": 0, "turns": 0, "tokens": 0}
        self._failed_in_a_row = 0
        self._out_of_time: str | None = None
        self._running: AsyncGenerator[Trajectory, None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            await self._running.aclose()

    def __aiter__(self) -> AsyncGenerator[Trajectory, None]:
        if self._running is None:
            self._running = self._run()
        return self._running

    async def _run(self) -> AsyncGenerator[Trajectory, None]:
        done: asyncio.Queue[Trajectory | BaseException | None] = asyncio.Queue()
        count = self.concurrency if self._coming is not None else min(self.concurrency, len(self.tasks))
        workers = [asyncio.create_task(self._work(done)) for _ in range(count)]
        clock = asyncio.create_task(self._clock(workers)) if self.budget.seconds is not None else None
        running = len(workers)
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
            everyone = workers if clock is None else [*workers, clock]
            for task in everyone:
                task.cancel()
            await asyncio.gather(*everyone, return_exceptions=True)
            await asyncio.gather(*(_close(env) for env in self._open))
            self._open.clear()
            self._idle.clear()

    async def _work(self, done: asyncio.Queue[Trajectory | BaseException | None]) -> None:
        """Take tasks until there are none; the last thing put is None, or what went wrong."""
        try:
            while (task := await self._next()) is not None:
                done.put_nowait(await self._play(task))
        except BaseException as err:  # noqa: BLE001  # raised again in the caller's task
            done.put_nowait(None if isinstance(err, asyncio.CancelledError) else err)
            return
        done.put_nowait(None)

    async def _next(self) -> Task | None:
        if self.stopped is None:
            for what, spent in self._spent.items():
                limit = getattr(self.budget, what)
                if limit is not None and spent >= limit:
                    self.stopped = f"the budget of {limit} {what} is spent"
        if self.stopped is not None:
            return None
        if self._coming is None:
            task = next(self._todo, None)
        else:
            async with self._turnstile:
                task = await anext(self._coming, None)
        if task is not None:
            self._spent["episodes"] += 1
        return task

    async def _play(self, task: Task) -> Trajectory:
        """The task's trajectory, tried again on a fresh env where something broke."""
        attempt = 1
        while True:
            trajectory = await self._attempt(task, attempt)
            self._spent["turns"] += len(trajectory.turns)
            self._spent["tokens"] += trajectory.sampled_tokens
            failure = trajectory.failure
            if failure is None:
                self._failed_in_a_row = 0
                return trajectory
            if attempt > self.retries or self.stopped is not None:
                self._failed_in_a_row += 1
                if self._failed_in_a_row >= self.give_up_after and self.stopped is None:
                    count = self._failed_in_a_row
                    self.stopped = f"{count} episodes in a row failed; the last: {failure.kind}: {failure.message}"
                return trajectory
            attempt += 1

    async def _attempt(self, task: Task, attempt: int) -> Trajectory:
        pool = self._idle.setdefault(_kind(task), [])
        try:
            env = pool.pop() if pool else self._build(task)
        except InfrastructureError as err:
            failure = Failure(boundary=err.boundary, kind=type(err).__name__, message=str(err))
            return Trajectory.of(task, attempt=attempt, failure=failure)
        good = False
        try:
            trajectory = await play(
                env,
                self.agent,
                task,
                agent_seed=child_seed(task.seed, "agent", task.member),
                call_timeout=self.call_timeout,
                attempt=attempt,
                out_of_time=lambda: self._out_of_time,
                begun=lambda: self._foretell(env, task),
            )
            good = trajectory.failure is None
        finally:
            if good:
                pool.append(env)
            else:
                self._open.discard(env)
                await _close(env)
        return trajectory

    def _foretell(self, env: Env, task: Task) -> None:
        """When an episode has begun, tell an env like it of the one that will be next once all that run are over."""
        if self._foretold >= len(self.tasks):
            return
        later = self.tasks[self._foretold]
        self._foretold += 1
        kind = _kind(later)
        listener = env if kind == _kind(task) else next(reversed(self._idle.get(kind, [])), None)
        if listener is not None and not later.options:
            listener.prepare(later.seed)

    def _build(self, task: Task) -> Env:
        env = make(task.env_id, **task.kwargs) if self._source is None else self._source(**task.kwargs)
        for wrap in self._wrappers:
            env = wrap(env)
        self._open.add(env)
        return env

    async def _clock(self, workers: list[asyncio.Task[None]]) -> None:
        """When the time is up, end what runs; each ends as a failure of its own, so that it is accounted for."""
        await asyncio.sleep(self.budget.seconds or 0.0)
        self.stopped = self._out_of_time = f"the time of {self.budget.seconds:g} s is up"
        for worker in workers:
            worker.cancel()


def stream(agent: Agent, env: EnvSource, **options: Unpack[Options]) -> Stream:
    """Episodes one at a time, each as soon as it is over."""
    return Stream(agent, env, options)


def _tasks(env: EnvSource, options: Options) -> list[Task]:
    episodes, group_size = options.get("episodes"), options.get("group_size", 1)
    kwargs = options.get("kwargs") or {}
    if isinstance(env, list):
        if episodes is not None or kwargs or group_size != 1:
            raise BadValue("a list of tasks says itself how many, with what keywords and in which groups")
        return env
    if episodes is None or episodes < 1:
        raise BadValue(f"episodes is at least 1, got {episodes!r}")
    if group_size < 1 or episodes % group_size:
        raise BadValue(f"episodes must be a multiple of group_size, got {episodes} and {group_size}")
    seed = options.get("seed")
    root = fresh_seed() if seed is None else seed
    if isinstance(env, str):
        name = get_spec(env).id  # an unknown id is the caller's mistake, not a failure of every episode
    else:
        name = getattr(env, "__qualname__", repr(env))
    return [
        Task(env_id=name, kwargs=kwargs, seed=child_seed(root, "task", group), group=group, member=member)
        for group in range(episodes // group_size)
        for member in range(group_size)
    ]


def _kind(task: Task) -> str:
    """The same for tasks that one env can play."""
    return f"{task.env_id} {sorted(task.kwargs.items(), key=repr)!r}"


async def _close(env: Env) -> None:
    """Close, come what may: one that fails to close has failed already, or is no longer needed."""
    with suppress(Exception):
        await asyncio.wait_for(env.aclose(), timeout=10.0)

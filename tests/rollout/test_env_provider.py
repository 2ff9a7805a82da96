"""Test rollouts on every env backend: episodes are equal, failures are isolated, and no process is left behind."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psutil  # type: ignore[import-untyped]  # psutil has no type hints
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.agents import ExpertAgent, RandomAgent
from palestra.errors import BadValue, UnknownKeyword
from palestra.registry import EnvFactory
from palestra.rollout import Task, Trajectory, collect
from palestra.rollout.env_provider import create_env_provider
from tests.rollout.envs import Counter

GUESS = "game:GuessTheNumber-v0-easy"
HANGMAN = "game:Hangman-v0-easy"
BACKENDS: list[dict[str, Any]] = [
    {"env_backend": "inline"},
    {"env_backend": "thread"},
    {"env_backend": "process", "env_workers": 2},
]
PROCESS: dict[str, Any] = {"env_backend": "process", "env_workers": 2}


def transcript(trajectory: Trajectory) -> tuple[Any, ...]:
    turns = tuple((turn.observation, turn.action.text, turn.reward, turn.terminated) for turn in trajectory.turns)
    return trajectory.env_id, trajectory.seed, trajectory.group, trajectory.member, turns, trajectory.success


def run(agent: Any, env: Any, **options: Any) -> Any:
    return asyncio.run(collect(agent, env, **options))


def counter_tasks(count: int, **kwargs: Any) -> list[Task]:
    name = f"{Counter.__module__}:{Counter.__qualname__}"
    return [Task(env_id=name, seed=seed, kwargs=kwargs, group=seed) for seed in range(count)]


@settings(max_examples=3, deadline=None)
@given(
    seed=st.integers(0, 2**40), agent=st.sampled_from([ExpertAgent, RandomAgent]), group_size=st.sampled_from([1, 2])
)
def test_same_seeds_give_the_same_episodes_on_every_backend(seed: int, agent: Any, group_size: int) -> None:
    transcripts = []
    for backend in BACKENDS:
        result = run(
            agent(),
            HANGMAN,
            episodes=6,
            group_size=group_size,
            concurrency=4,
            seed=seed,
            wrappers=["concat"],
            **backend,
        )
        assert result.failures == []
        transcripts.append([transcript(trajectory) for trajectory in result.trajectories])
    assert transcripts[0] == transcripts[1] == transcripts[2]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_plain_five_tuples_and_mixed_tasks(backend: dict[str, Any]) -> None:
    tasks = [*counter_tasks(4), *counter_tasks(4, turns=2), Task(env_id=GUESS, seed=1, group=9)]
    result = run(RandomAgent(), tasks, concurrency=3, **backend)
    assert sorted(len(t.turns) for t in result.trajectories if t.env_id != GUESS) == [2, 2, 2, 2, 4, 4, 4, 4]
    assert all(t.success for t in result.trajectories if t.env_id != GUESS)
    pids = {turn.info["pid"] for t in result.trajectories if t.env_id != GUESS for turn in t.turns}
    assert (os.getpid() in pids) == (backend["env_backend"] != "process")


def test_a_cpu_bound_env_does_not_block_the_event_loop() -> None:
    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.create_task(tick())
        result = await collect(RandomAgent(), counter_tasks(2, trouble="gil"), concurrency=2, **PROCESS)
        ticker.cancel()
        assert len(result.trajectories) == 2
        return ticks

    # Four blocking steps of 0.3 s allow about eight ticks in this process. On a busy machine, there may be few as well.
    assert any(asyncio.run(main()) > 12 for _ in range(5))


@pytest.mark.parametrize("trouble", ["hang", "kill", "raise"])
def test_a_broken_env_is_a_failure_of_its_episode_only(trouble: str) -> None:
    tasks = counter_tasks(8, trouble=trouble, bad_seeds=(3,))
    result = run(RandomAgent(), tasks, concurrency=8, retries=1, step_timeout=4.0, reset_timeout=120.0, **PROCESS)
    assert [t.seed for t in result.failures] == [3]
    failure = result.failures[0].failure
    cause = {"hang": "deadline", "kill": "died", "raise": "raised"}[trouble]
    assert failure.boundary == "env"
    assert cause in failure.message
    assert result.failures[0].attempts == 2
    expected = run(RandomAgent(), [task for task in counter_tasks(8) if task.seed != 3])
    assert [transcript(t) for t in result.trajectories] == [transcript(t) for t in expected.trajectories]


def children() -> list[psutil.Process]:
    processes: list[psutil.Process] = psutil.Process().children(recursive=True)
    return processes


def test_killing_workers_loses_no_episode_and_leaves_no_process() -> None:
    before = {child.pid for child in children()}

    async def main() -> Any:
        killed = 0

        async def kill_workers() -> None:
            nonlocal killed
            while killed < 2:
                await asyncio.sleep(0.3)
                workers = [child for child in children() if child.pid not in before]
                if workers:
                    workers[0].kill()
                    killed += 1

        killer = asyncio.create_task(kill_workers())
        tasks = counter_tasks(24, turns=6, step_seconds=0.05)
        result = await collect(RandomAgent(), tasks, concurrency=6, **PROCESS)
        killer.cancel()
        assert killed > 0
        return result

    result = asyncio.run(main())
    assert result.failures == []
    expected = run(RandomAgent(), counter_tasks(24, turns=6))
    assert [t.turns[-1].observation for t in result.trajectories] == [
        t.turns[-1].observation for t in expected.trajectories
    ]
    assert {child.pid for child in children() if child.status() != psutil.STATUS_ZOMBIE} <= before


def test_leaving_a_stream_early_ends_the_workers() -> None:
    before = {child.pid for child in children()}

    async def main() -> None:
        async with palestra.rollout.stream(
            RandomAgent(), counter_tasks(50, step_seconds=0.05), **PROCESS
        ) as trajectories:
            async for _ in trajectories:
                break

    asyncio.run(main())
    assert {child.pid for child in children() if child.status() != psutil.STATUS_ZOMBIE} <= before


def test_rollouts_share_a_provider() -> None:
    provider = create_env_provider("process", capacity=2, workers=1)

    async def play(tasks: list[Task]) -> set[int]:
        result = await collect(RandomAgent(), tasks, concurrency=8, env_provider=provider)
        assert len(result.trajectories) == len(tasks)
        return {turn.info["pid"] for t in result.trajectories for turn in t.turns}

    async def two_at_once() -> list[set[int]]:
        return list(await asyncio.gather(play(counter_tasks(6)), play(counter_tasks(6, turns=2))))

    first = asyncio.run(play(counter_tasks(4)))
    assert len(first) == 1
    assert asyncio.run(two_at_once()) == [first, first]  # a new event loop uses the same worker
    asyncio.run(provider.aclose())
    assert not psutil.pid_exists(next(iter(first)))


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_usage_errors_are_raised(backend: dict[str, Any]) -> None:
    with pytest.raises(UnknownKeyword, match="Did you mean turns"):
        run(RandomAgent(), EnvFactory.of(Counter), episodes=4, kwargs={"trns": 3}, **backend)
    for options, message in [
        ({"env_backend": "processes"}, "env_backend must be one of"),
        ({**backend, "env_workers": 0}, "env_workers must be at least 1"),
        ({**backend, "step_timeout": 0.0}, "step_timeout must be greater than 0"),
    ]:
        with pytest.raises(BadValue, match=message):
            run(RandomAgent(), GUESS, episodes=1, **options)


def test_inline_step_timeout_is_a_failure() -> None:
    tasks = counter_tasks(2, trouble="hang", bad_seeds=())
    slow = counter_tasks(1, step_seconds=3.0, turns=1)
    assert run(RandomAgent(), tasks, step_timeout=60.0).failures == []
    result = run(RandomAgent(), slow, step_timeout=0.2, retries=0)
    assert [t.failure.kind for t in result.failures] == ["TimeoutError"]

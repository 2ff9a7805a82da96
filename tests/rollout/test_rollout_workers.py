"""Test rollouts in several processes with one engine: the same episodes as in one process, and lost processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palestra.agents import ChatAgent, RandomAgent
from palestra.engines import LocalEngine, ScriptedEngine
from palestra.engines.default_model import default_model
from palestra.errors import BadValue, UnknownKeyword
from palestra.rollout import Budget, Failure, RolloutWorkers, Task, Trajectory, collect
from palestra.rollout.packing import pack_trajectory, unpack_trajectory
from palestra.rollout.types import Turn
from palestra.types import Action, Call
from tests.rollout.envs import Counter, InlineCounter

COUNTER = f"{Counter.__module__}:{Counter.__qualname__}"


def tasks(count: int, **kwargs: Any) -> list[Task]:
    return [Task(env_id=COUNTER, seed=seed, kwargs=kwargs, group=seed, meta={"step": 3}) for seed in range(count)]


def assert_same_episodes(found: Sequence[Trajectory], expected: Sequence[Trajectory]) -> None:
    """Compare trajectories except for times and process ids; log-probabilities differ by rounding between batches."""
    assert [without_times(t) for t in found] == [without_times(t) for t in expected]
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-3)


def without_times(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without times, process ids and log-probabilities."""
    turns = []
    for turn in trajectory.turns:
        calls = tuple(replace(call, logprobs=[]) for call in turn.action.calls)
        info = {**turn.info, "pid": 0}
        action = replace(turn.action, calls=calls)
        turns.append(replace(turn, action=action, info=info, agent_seconds=0.0, env_seconds=0.0))
    return replace(trajectory, turns=tuple(turns), started=0.0, seconds=0.0)


def logprobs(trajectories: Sequence[Trajectory]) -> list[float]:
    calls = [call for t in trajectories for turn in t.turns for call in turn.action.calls]
    return [value for call in calls for value in call.logprobs]


@asynccontextmanager
async def chat_agent() -> AsyncIterator[ChatAgent]:
    model, tokenizer = default_model("0.1M")
    async with LocalEngine(model, tokenizer=tokenizer, device="cpu", max_running=16) as engine:
        yield ChatAgent(engine, max_tokens=5, temperature=0.9, tempered_logprobs=True, stop="7")


def test_episodes_are_the_same_as_in_one_process_also_after_a_worker_was_killed() -> None:
    async def run() -> None:
        async with chat_agent() as agent, RolloutWorkers(agent.engine, workers=2) as pool:
            expected = await collect(agent, tasks(8), concurrency=5)
            for _ in range(2):
                result = await collect(agent, tasks(8), concurrency=5, rollout_workers=pool)
                assert_same_episodes(result.trajectories, expected.trajectories)
                assert len({t.turns[0].info["pid"] for t in result.trajectories} - {os.getpid()}) == 2
            with pytest.raises(UnknownKeyword):
                await collect(agent, tasks(1, unknown=1), rollout_workers=pool)
            result = await collect(
                agent, tasks(2, step_seconds=30.0), budget=Budget(seconds=0.3), rollout_workers=pool, retries=0
            )
            assert {t.failure.boundary for t in result.failures if t.failure} == {"budget"}
            processes = [worker.start() for worker in pool._workers]
            for process in processes:  # workers must not open the GPU of the engine
                assert "torch" not in Path(f"/proc/{process.pid}/maps").read_text()
            os.kill(processes[0].pid, signal.SIGKILL)
            result = await collect(agent, tasks(4), rollout_workers=pool)
            assert_same_episodes(result.trajectories, expected.trajectories[:4])
            assert pool._workers[0].start() is not processes[0]
            assert pool._workers[1].start() is processes[1]

    asyncio.run(run())


def test_an_episode_that_kills_its_process_fails_and_the_others_start_again() -> None:
    options: dict[str, Any] = {"concurrency": 6, "rollout_workers": 1, "retries": 1}
    env_id = f"{InlineCounter.__module__}:{InlineCounter.__qualname__}"
    played = [replace(task, env_id=env_id) for task in tasks(6, trouble="kill", bad_seeds=(2,))]
    result = asyncio.run(collect(RandomAgent(), played, **options))
    assert [t.seed for t in result.trajectories] == [0, 1, 3, 4, 5]
    assert all(t.success and len(t.turns) == 4 and t.attempts == 1 for t in result.trajectories)
    (failed,) = result.failures
    assert failed.failure is not None
    assert (failed.seed, failed.attempts, failed.success, failed.failure.kind) == (2, 2, None, "EnvFailed")
    assert "signal SIGKILL" in failed.failure.message


def test_workers_need_a_local_engine_and_their_own_environments() -> None:
    async def run(agent: Any, **options: Any) -> None:
        await collect(agent, tasks(1), **options)

    with pytest.raises(BadValue, match="rollout_workers needs a LocalEngine"):
        asyncio.run(run(ChatAgent(ScriptedEngine("a")), rollout_workers=1))
    with pytest.raises(BadValue, match="remove env_backend"):
        asyncio.run(run(RandomAgent(), rollout_workers=1, env_backend="process"))
    with pytest.raises(BadValue, match="at least 1"):
        asyncio.run(run(RandomAgent(), rollout_workers=-1))


def test_packed_trajectories_are_unpacked_completely() -> None:
    def call(prompt: list[int], ids: list[int], **fields: Any) -> Call:
        return Call(prompt_ids=prompt, ids=ids, logprobs=[-0.1] * len(ids), finish="stop", version=2, **fields)

    messages: Any = [{"role": "user", "content": "hi"}]
    without_ids = replace(call([], [4], usage=(3, 1)), prompt=messages, logprobs=[])
    actions = [
        Action(text="a", calls=(call([1, 2], [3, 70_000]),)),
        Action(text="b", calls=(call([1, 2, 3, 70_000, 5], [6]), call([9], [8, 7], kind="summary", split="context"))),
        Action(text="c", calls=(call([9, 8, 7], []), without_ids)),
        Action(text="d", tool_calls=({"name": "f", "arguments": {}},)),
    ]
    turns = tuple(
        Turn(observation=f"o{at}", action=action, reward=at / 2, terminated=at == 3, truncated=False, info={"at": at},
             agent_seconds=0.1, env_seconds=0.2)
        for at, action in enumerate(actions)
    )  # fmt: skip
    task = Task(env_id="x", seed=4, kwargs={"a": 1}, group=2, member=1, meta={"m": 1})
    for failure in (None, Failure(boundary="env", kind="E", message="m", trace="t")):
        trajectory = replace(
            Trajectory.of(task, attempt=2, started=1.5, failure=failure), turns=turns, final_observation="end",
            success=True, final_prompt=(1, 2), task_id="id", seconds=2.5,
        )  # fmt: skip
        assert unpack_trajectory(task, pack_trajectory(trajectory)) == trajectory

"""Test `collect` and `stream`: groups, seeds, budgets, failures and cleanup."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.errors import BadValue, ContextFull, UnknownEnv
from palestra.rollout import Budget, Progress, Task, Trajectory, collect, stream
from palestra.types import Action, Observation
from palestra.wrappers import Horizon
from tests.rollout.players import CountedEnv, Solver, SolverSession, Unreliable

GAME = "game:GuessTheNumber-v0-easy"


def run(*args: Any, **kwargs: Any) -> palestra.rollout.RolloutResult:
    return asyncio.run(collect(*args, **kwargs))


def transcript(trajectory: Trajectory) -> list[Any]:
    return [trajectory.seed, [(turn.observation, turn.action.text, turn.reward) for turn in trajectory.turns]]


def test_every_episode_is_played_once_and_groups_share_a_seed() -> None:
    result = run(Solver(), GAME, episodes=64, group_size=4, concurrency=10, seed=1)
    assert [(t.group, t.member) for t in result.trajectories] == [(g, m) for g in range(16) for m in range(4)]
    assert all(t.success and t.failure is None for t in result.trajectories)
    seeds = [t.seed for t in result.trajectories]
    assert all(len(set(seeds[i : i + 4])) == 1 for i in range(0, 64, 4))
    assert len(set(seeds)) == 16
    assert result.failures == []
    assert result.unstarted == 0
    assert result.metrics["success"] == 1.0
    assert result.metrics["episodes"] == 64
    assert result.metrics["tokens"] == sum(t.sampled_tokens for t in result.trajectories) > 0


def test_trajectory_contains_the_conversation() -> None:
    (trajectory,) = run(Solver(), GAME, episodes=1, seed=5).trajectories
    env = palestra.make(GAME)
    observation, _ = env.reset(seed=trajectory.seed)
    for turn in trajectory.turns:
        assert turn.observation == observation
        step = env.step(turn.action.text)
        assert (turn.reward, turn.terminated, turn.truncated) == step[1:4]
        observation = step.observation
    assert trajectory.final_observation == observation
    assert trajectory.total_reward == 1.0


@given(concurrency=st.integers(1, 20))
@settings(max_examples=8)
def test_the_same_seed_gives_the_same_episodes_at_any_concurrency(concurrency: int) -> None:
    results = [run(Solver(), GAME, episodes=12, concurrency=c, seed=9) for c in (3, concurrency)]
    assert [transcript(t) for t in results[0].trajectories] == [transcript(t) for t in results[1].trajectories]


def test_wrappers_and_keywords_reach_the_env() -> None:
    result = run(
        Solver(),
        GAME,
        episodes=8,
        seed=2,
        kwargs={"max_number": 1000, "max_turns": 12},
        wrappers=[lambda e: Horizon(e, 2)],
    )
    assert all(len(t.turns) == 2 and t.truncated and t.success is False for t in result.trajectories)
    assert result.metrics["truncated"] == 1.0


def test_tasks_of_several_envs() -> None:
    tasks = [
        Task(env_id=env_id, seed=i, group=i, meta={"level": i})
        for i, env_id in enumerate([GAME, "game:TowerofHanoi-v0-easy", GAME])
    ]
    result = run(Solver(), tasks)
    assert [t.env_id for t in result.trajectories] == [task.env_id for task in tasks]
    assert [t.meta["level"] for t in result.trajectories] == [0, 1, 2]


def test_two_thousand_episodes_with_faults_at_every_boundary() -> None:
    CountedEnv.instances.clear()
    agent = Unreliable(0.02)
    seen: list[Trajectory] = []
    result = run(
        agent,
        CountedEnv,
        episodes=2000,
        group_size=4,
        concurrency=100,
        seed=3,
        kwargs={"faults": 0.02},
        retries=1,
        on_trajectory=seen.append,
    )
    episodes = [*result.trajectories, *result.failures]
    assert sorted((t.group, t.member) for t in episodes) == [(g, m) for g in range(500) for m in range(4)]
    assert sorted(id(t) for t in seen) == sorted(id(t) for t in episodes)
    assert all(t.success is not None and t.failure is None for t in result.trajectories)
    assert all(t.success is None and t.failure is not None for t in result.failures)
    boundaries = {t.failure.boundary for t in result.failures if t.failure is not None}
    assert boundaries == {"env", "tool", "engine", "parsing"}
    assert all(t.attempts == 2 for t in result.failures)
    assert any(t.attempts == 2 for t in result.trajectories), "some retries must succeed"
    assert result.metrics["failures"] == len(result.failures) == sum(result.metrics["failures_by_boundary"].values())
    assert CountedEnv.instances["open"] == 0
    assert agent.closed > 2000


def test_unexpected_exception_is_recorded_with_its_traceback() -> None:
    result = run(Solver(), CountedEnv, episodes=1, seed=1, kwargs={"faults": 0.999}, retries=0)
    (failed,) = result.failures
    assert failed.failure is not None
    assert failed.failure.boundary == "env"
    assert failed.failure.kind in ("EnvFailed", "RuntimeError")
    assert "tests/rollout/players.py" in failed.failure.trace


def test_permanent_engine_failure_stops_the_run() -> None:
    agent = Unreliable(1.0)
    result = run(agent, GAME, episodes=5000, concurrency=8, seed=1, retries=0, give_up_after=20)
    assert result.trajectories == []
    assert 20 <= len(result.failures) < 40
    assert result.unstarted == 5000 - len(result.failures)
    assert "consecutive episodes failed; the last with EngineFailed: the model is gone" in (result.stopped or "")


def test_call_timeout_fails_the_episode() -> None:
    CountedEnv.instances.clear()
    result = run(Solver(), CountedEnv, episodes=2, seed=1, kwargs={"hang": True}, retries=0, call_timeout=0.05)
    assert [t.failure.message for t in result.failures if t.failure] == ["no reply within the time limit"] * 2
    assert CountedEnv.instances["open"] == 0


def test_budgets() -> None:
    result = run(Solver(), GAME, episodes=1000, concurrency=4, seed=1, budget=Budget(episodes=10))
    assert len(result.trajectories) == 10
    assert result.stopped == "the budget of 10 episodes is used up"
    assert result.unstarted == 990
    result = run(Solver(), GAME, episodes=1000, concurrency=4, seed=1, budget=Budget(turns=30))
    assert 30 <= result.metrics["turns"] <= 30 + 4 * 4
    result = run(Solver(), GAME, episodes=1000, concurrency=4, seed=1, budget=Budget(tokens=300))
    assert 300 <= result.metrics["tokens"] <= 300 + 4 * 50


def test_running_episodes_become_failures_when_the_time_budget_is_exceeded() -> None:
    CountedEnv.instances.clear()
    result = run(
        Solver(), CountedEnv, episodes=50, concurrency=5, seed=1, kwargs={"hang": True}, budget=Budget(seconds=0.1)
    )
    assert len(result.failures) == 5
    assert {t.failure.boundary for t in result.failures if t.failure} == {"budget"}
    assert result.unstarted == 45
    assert CountedEnv.instances["open"] == 0


def test_leaving_a_stream_early_closes_every_env() -> None:
    CountedEnv.instances.clear()

    async def some() -> int:
        count = 0
        async with stream(Solver(), CountedEnv, episodes=500, concurrency=20, seed=1) as trajectories:
            async for _ in trajectories:
                count += 1
                if count == 30:
                    break
        return count

    assert asyncio.run(some()) == 30
    assert CountedEnv.instances["open"] == 0


def test_cancelling_closes_every_env() -> None:
    CountedEnv.instances.clear()

    async def cancelled() -> None:
        task = asyncio.create_task(
            collect(Solver(), CountedEnv, episodes=50, concurrency=10, seed=1, kwargs={"hang": True})
        )
        while CountedEnv.instances["open"] < 10:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)  # long enough to open more, if the concurrency were not limited
        assert CountedEnv.instances["open"] == 10
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert CountedEnv.instances["open"] == 0


def test_exception_in_the_callback_is_raised_and_closes_every_env() -> None:
    CountedEnv.instances.clear()
    with pytest.raises(ZeroDivisionError):
        run(Solver(), CountedEnv, episodes=50, concurrency=10, seed=1, on_trajectory=lambda _: 1 / 0)
    assert CountedEnv.instances["open"] == 0


def test_ctrl_c_closes_every_env() -> None:
    code = """
        import asyncio, os, signal, threading
        from palestra.rollout import collect
        from tests.rollout.players import CountedEnv, Solver
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            asyncio.run(collect(Solver(), CountedEnv, episodes=50, concurrency=10, seed=1, kwargs={"hang": True}))
        except KeyboardInterrupt:
            print("open:", CountedEnv.instances["open"])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == "open: 0\n"
    assert done.stderr == ""


def test_full_context_truncates_the_episode() -> None:
    class Session(SolverSession):
        async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
            if len(self.ids) > 8:
                raise ContextFull("12 tokens exceed the context of 8")
            return await super().act(observation, info)

    class Small(Solver):
        def start(self, env: palestra.Env, *, seed: int | None = None) -> SolverSession:
            return Session(self, env, seed or 0)

    result = run(Small(), "game:GuessTheNumber-v0-hard", episodes=20, seed=1)
    assert result.failures == []
    truncated = [t for t in result.trajectories if not t.success]
    assert truncated
    assert all(t.truncated and t.turns[-1].info["ending"] == "context" for t in truncated)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "episodes must be at least 1"),
        ({}, "episodes must be at least 1"),
        ({"episodes": 10, "group_size": 4}, "multiple of group_size"),
        ({"episodes": 4, "concurrency": 0}, "concurrency must be at least 1"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        run(Solver(), GAME, **options)


def test_unknown_env_raises() -> None:
    with pytest.raises(UnknownEnv, match="Did you mean"):
        run(Solver(), "game:GuessTheNumbr-v0-easy", episodes=4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_rewrites_its_line_in_a_terminal_only() -> None:
    result = run(Solver(), GAME, episodes=6, seed=1)
    terminal, log = Terminal(), io.StringIO()
    for stream_ in (terminal, log):
        progress = Progress(6, stream_)
        for trajectory in result.trajectories:
            progress.update(trajectory)
        progress.close()
    assert terminal.getvalue().startswith("\r")
    assert "6/6 episodes, success 100.0%" in terminal.getvalue()
    assert "tokens/s" in terminal.getvalue()
    assert log.getvalue().count("\n") == 1
    assert "\r" not in log.getvalue()

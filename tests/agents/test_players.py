"""Test agents that need no model."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from typing import Any

import pytest

from palestra.agents import Agent, ExpertAgent, FunctionAgent, HumanAgent, RandomAgent
from palestra.core import Env, Reset
from palestra.errors import BadValue
from palestra.registry import make
from palestra.rollout import collect
from palestra.types import Action, Step

GAME = "game:GuessTheNumber-v0-easy"


def play(agent: Agent, env: Env, *, seed: int | None = None, task: int = 3) -> list[str]:
    """Play one episode and return the actions."""

    async def run() -> list[str]:
        observation, info = env.reset(seed=task)
        session = agent.start(env, seed=seed)
        actions: list[str] = []
        while True:
            action = await session.act(observation, info)
            actions.append(action.text)
            assert action.calls == ()
            step = env.step(action.text)
            observation, info = step.observation, step.info
            if step.done:
                session.close()
                return actions

    return asyncio.run(run())


class Slow(Env):
    """Env that is not inline, so that its policies run in a thread."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "go", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:
        return Step("", 1.0, True, False, {"success": True, "action": action})

    def sample_random_action(self) -> str:
        return f"{threading.current_thread() is threading.main_thread()}"


def test_expert_solves_the_task() -> None:
    env = make(GAME)
    play(ExpertAgent(), env)
    assert env.ending == "solved"  # type: ignore[attr-defined]


def test_env_without_expert_raises() -> None:
    with pytest.raises(BadValue, match="has no expert"):
        play(ExpertAgent(), Slow())


def test_random_agents_with_different_seeds_act_differently() -> None:
    env = make("game:Mastermind-v0-easy")
    games = [tuple(play(RandomAgent(), env, seed=seed)) for seed in (1, 2, 1, 2)]
    assert games[0] == games[2] != games[1] == games[3]
    assert play(RandomAgent(), env) == play(RandomAgent(), env)  # without a seed, the env's generator is used


@pytest.mark.parametrize(
    "env_id",
    [
        "babyai:GoTo-v0",
        "code:Repair-v0-easy",
        "game:Sudoku-v0-easy",
        "logic:Rules-v0-d0",
        "math:Arithmetic-v0-easy",
        "qa:World-v0-1hop",
        "sql:Shop-v0",
        "textcraft:Depth2-v0",
        "webshop:Shop-v0",
    ],
)
def test_members_of_a_group_act_differently(env_id: str) -> None:
    def actions() -> list[tuple[str, ...]]:
        result = asyncio.run(collect(RandomAgent(), env_id, episodes=6, group_size=6, seed=3, concurrency=1))
        assert len({trajectory.seed for trajectory in result.trajectories}) == 1
        return sorted(tuple(turn.action.text for turn in trajectory.turns) for trajectory in result.trajectories)

    first = actions()
    assert len(set(first)) > 1
    assert first == actions()


def test_policies_of_slow_envs_run_in_a_thread() -> None:
    assert play(RandomAgent(), Slow()) == ["False"]


def test_function_agents() -> None:
    def plain(observation: Any, info: dict[str, Any]) -> str:
        return f"{observation} {info['seed']} {threading.current_thread() is threading.main_thread()}"

    async def awaited(observation: Any, info: dict[str, Any]) -> Action:
        await asyncio.sleep(0)
        return Action(text=str(observation).upper())

    assert play(FunctionAgent(plain), Slow()) == ["go 3 True"]
    assert play(FunctionAgent(plain, threads=True), Slow()) == ["go 3 False"]
    assert play(FunctionAgent(awaited), Slow()) == ["GO"]
    with pytest.raises(BadValue, match="string or an Action, got int"):
        play(FunctionAgent(lambda observation, info: 7), Slow())  # type: ignore[arg-type, return-value]
    with pytest.raises(BadValue, match="needs a function"):
        FunctionAgent("x")  # type: ignore[arg-type]


def test_human_agent_reads_from_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("open the door\n"))
    assert play(HumanAgent(), Slow()) == ["open the door"]
    assert capsys.readouterr().out == "\ngo\n\n> "
    with pytest.raises(BadValue, match="standard input is closed"):
        play(HumanAgent(), Slow())
    assert play(HumanAgent(ask=lambda text: f"re: {text}"), Slow()) == ["re: go"]


def test_human_agent_requests_one_action_at_a_time() -> None:
    concurrent: list[int] = []
    active = 0

    def ask(text: str) -> str:
        nonlocal active
        active += 1
        concurrent.append(active)
        threading.Event().wait(0.01)
        active -= 1
        return text

    async def run() -> None:
        agent = HumanAgent(ask=ask)
        sessions = [agent.start(Slow()) for _ in range(4)]
        await asyncio.gather(*(session.act("x", {}) for session in sessions))

    asyncio.run(run())
    assert concurrent == [1] * 4


def test_importing_agents_does_not_import_heavy_packages() -> None:
    code = "import sys, palestra.agents; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "aiohttp", "jinja2", "tokenizers", "orjson"} & set(loaded)

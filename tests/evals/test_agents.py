"""Test that agent names resolve to the right agents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from palestra.agents import AgentSettings, ChatAgent, ExpertAgent, LastTurns, RandomAgent
from palestra.engines import Sampling
from palestra.engines.default_model import default_model, save
from palestra.engines.model_folders import fingerprint, model_folder
from palestra.errors import BadValue
from palestra.evals.agents import EvaluatedAgent, ModelSettings, kind_of, python_agent
from palestra.rollout import collect
from tests.agents.families import QWEN3
from tests.engines.stub_server import Stub
from tests.evals.players import GAME

HERE = "tests.evals.players"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(*default_model("0.1M"), tmp_path_factory.mktemp("models") / "tiny")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("expert", "player"),
        ("random", "player"),
        ("my_module:play", "python"),
        ("a.b:play", "python"),
        ("http://localhost:8000/v1", "server"),
        ("https://api.example.com/v1", "server"),
        ("default:1M", "default"),
        ("models/tiny", "hf"),
        ("Qwen/Qwen3-1.7B", "hf"),
    ],
)
def test_kind_of_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def replies(name: str, episodes: int = 1, seed: int = 3) -> list[list[str]]:
    result = asyncio.run(collect(python_agent(f"{HERE}:{name}"), GAME, episodes=episodes, seed=seed, retries=0))
    assert not result.failures, result.failures[0].failure
    return [[turn.action.text for turn in t.turns] for t in result.trajectories]


def test_function_arguments_are_passed_by_name() -> None:
    assert replies("guess") == replies("guess")
    for name in ("first", "choosy", "anything"):
        assert set(replies(name)[0]) == {"\\boxed{5}"}
    actions = replies("counting")[0]
    assert actions == [f"\\boxed{{{i + 1}}}" for i in range(len(actions))]


def test_exception_in_agent_function_is_a_failure() -> None:
    for name, words in (("broken", "no idea"), ("wordless", "must return a string or an Action, got int")):
        result = asyncio.run(collect(python_agent(f"{HERE}:{name}"), GAME, episodes=2, seed=1, retries=0))
        assert not result.trajectories
        failure = result.failures[0].failure
        assert failure is not None
        assert (failure.boundary, words in failure.message) == ("agent", True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{HERE}:greedy", "unknown argument 'wallet'"),
        (f"{HERE}:missing", "no attribute 'missing'"),
        ("no_such_module:play", "no module named 'no_such_module'"),
        (f"{HERE}:GAME", "must be a function or a palestra Agent, got str"),
    ],
)
def test_invalid_agent_names(name: str, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        python_agent(name)


def test_custom_agent() -> None:
    assert isinstance(python_agent("palestra.agents:ExpertAgent"), ExpertAgent)


async def opened(name: str, **settings: Any) -> tuple[Any, dict[str, Any]]:
    async with EvaluatedAgent(name, ModelSettings(**settings)) as player:
        return player.agent({"temperature": 0.0}), player.describe()


def test_players_are_recorded_by_name() -> None:
    agent, pinned = asyncio.run(opened("random"))
    assert isinstance(agent, RandomAgent)
    assert pinned == {"name": "random", "kind": "player"}


def test_model_folder_is_recorded_with_weights_and_template(model: Path, tmp_path: Path) -> None:
    agent, pinned = asyncio.run(opened(str(model), sampling=Sampling(max_tokens=5, temperature=0.7), device="cpu"))
    assert isinstance(agent, ChatAgent)
    # The suite entry overrides these settings.
    assert (agent.sampling.temperature, agent.sampling.max_tokens) == (0.0, 5)
    assert pinned["sampling"]["temperature"] == 0.7
    assert len(pinned["template"]) == 16
    assert pinned["weights"] == fingerprint(model)
    other = save(*default_model("0.1M", seed=1), tmp_path / "other")
    assert fingerprint(other) != fingerprint(model)


def test_the_embedded_model_needs_no_folder() -> None:
    agent, pinned = asyncio.run(opened("default:0.1M", device="cpu"))
    assert isinstance(agent, ChatAgent)
    assert (pinned["kind"], len(pinned["template"])) == ("default", 16)
    with pytest.raises(BadValue, match="size must be one of .* got '2M'"):
        asyncio.run(opened("default:2M"))


def test_the_folder_of_a_run_is_its_best_model(tmp_path: Path, model: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    assert model_folder(str(run)) == str(run)
    with pytest.raises(BadValue, match="has not saved a model yet"):
        asyncio.run(opened(str(run)))
    (run / "last").symlink_to(model)
    assert model_folder(str(run)) == str(run / "last")
    (run / "best").symlink_to(model)
    assert model_folder(str(run)) == str(run / "best")


def test_server_is_recorded_with_its_model() -> None:
    with Stub("plain", context=4096) as server:
        _, pinned = asyncio.run(opened(server.url))
    assert (pinned["kind"], pinned["model"], pinned["template"]) == ("server", "toy", None)


def test_conversation_settings_reach_the_agent_and_are_recorded(tmp_path: Path) -> None:
    model, tokenizer = default_model("0.1M")
    tokenizer.chat_template = QWEN3
    folder = str(save(model, tokenizer, tmp_path / "thinking"))
    agent, pinned = asyncio.run(opened(folder, auto_max_tokens=True, device="cpu"))
    assert (agent.sampling.max_tokens, agent.keep_thinking) == (512, True)
    assert (pinned["template_options"], pinned["conversation"]) == ({"enable_thinking": False}, {})
    settings = AgentSettings(thinking="on", style="react", context="last_turns", context_turns=2, max_context=900)
    agent, pinned = asyncio.run(opened(folder, auto_max_tokens=True, agent=settings, device="cpu"))
    assert (agent.sampling.max_tokens, agent.context, agent.window) == (4096, LastTurns(2), 900)
    assert (pinned["style"], pinned["max_context"], pinned["sampling"]["max_tokens"]) == ("react", 900, 4096)
    assert pinned["conversation"] == {"thinking": "on", "context": "last_turns", "context_turns": 2}


def test_a_server_that_renders_the_template_gets_its_variables() -> None:
    settings = AgentSettings(thinking="off", template_kwargs={"reasoning_effort": "low"})
    with Stub("plain", context=4096) as server:
        asyncio.run(_one_reply(server.url, settings))
        assert server.requests[-1][1]["chat_template_kwargs"] == {"enable_thinking": False, "reasoning_effort": "low"}
        asyncio.run(_one_reply(server.url, AgentSettings()))
        assert "chat_template_kwargs" not in server.requests[-1][1]


async def _one_reply(url: str, settings: AgentSettings) -> None:
    async with EvaluatedAgent(url, ModelSettings(agent=settings)) as player:
        await collect(player.agent({}), GAME, episodes=1, seed=1)


def test_missing_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(BadValue, match="MY_KEY"):
        asyncio.run(opened("http://localhost:1/v1", api_key_env="MY_KEY"))


def test_api_key_is_read_from_the_variable_and_never_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    with Stub("plain", context=4096, key="s3cret") as server:
        _, pinned = asyncio.run(opened(server.url, api_key_env="MY_KEY"))
    assert "s3cret" not in str(pinned)

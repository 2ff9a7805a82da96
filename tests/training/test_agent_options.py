"""Test that a config's agent options apply to the run's episodes, samples and evaluations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from palestra.agents import AgentSettings, ReActStyle, Summary
from palestra.core import Env, Reset
from palestra.engines import default_model
from palestra.rollout import collect, read
from palestra.rollout.samples import to_samples
from palestra.training import train
from palestra.training.demonstrations import Demonstrator
from palestra.training.recipe import from_mapping
from palestra.training.sync_trainer import SyncTrainer
from palestra.types import Step
from tests.agents.families import QWEN3

TINY = {
    "env": "tests.training.test_agent_options:ThreeTurns",
    "steps": 1,
    "episodes": 4,
    "group_size": 1,
    "eval_episodes": 2,
    "eval_every": 0,
    "threads": 1,
    "warm_start": 0,
}


class ThreeTurns(Env):
    """Environment that accepts any text for three turns."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        self.turn = 0
        return "Say something.", {"seed": seed}

    def step(self, action: str) -> Step:
        self.turn += 1
        done = self.turn == 3
        return Step("Go on.", float(len(action) % 2), done, False, {"success": False} if done else {})

    def sample_random_action(self) -> str:
        return "a"


@pytest.fixture(scope="module")
def thinking_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with an untrained model whose template has a thinking switch, like Qwen3's."""
    folder = tmp_path_factory.mktemp("thinking") / "model"
    model, tokenizer = default_model.default_model("0.1M")
    tokenizer.chat_template = QWEN3
    return str(default_model.save(model, tokenizer, folder))


def trainer_of(folder: Path, **settings: Any) -> SyncTrainer:
    return SyncTrainer(from_mapping({**TINY, "out": str(folder), **settings}))


def episodes_of(folder: Path, **settings: Any) -> tuple[list[Any], list[str]]:
    """Train for one step and return the training episodes and the log."""
    lines: list[str] = []
    train(from_mapping({**TINY, "out": str(folder), **settings}), log=lines.append)
    return list(read(folder / "trajectories" / "step-000000.jsonl.gz")), lines


def test_training_and_evaluation_use_the_agent_options(tmp_path: Path) -> None:
    trainer = trainer_of(
        tmp_path,
        model="default:0.1M",
        system="Play.",
        style="react",
        context="summary",
        context_turns=2,
        stop="END",
        temperature=0.7,
        eval_temperature=0.0,
    )
    agents = trainer.player.agent(), trainer.player.agent(evaluation=True)
    for agent in agents:
        assert (agent.system, agent.style, agent.context) == ("Play.", ReActStyle(), Summary(turns=2))
        assert (agent.sampling.stop, agent.sampling.max_tokens) == (("END",), 16)
    assert [agent.sampling.temperature for agent in agents] == [0.7, 0.0]
    assert [agent.sampling.tempered_logprobs for agent in agents] == [True, False]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_replies_of_an_untrained_model_are_as_long_as_those_in_the_warm_start(
    asynchronous: bool, tmp_path: Path
) -> None:
    """Check that a guess of three tokens and the end of the turn fits, and that a resumed run has the same limit."""
    small = {"episodes": 4, "eval_episodes": 2, "eval_every": 0, "warm_start": 4, "warm_epochs": 1, "threads": 1}
    settings = {"env": "game:GuessTheNumber-v0-easy", "out": str(tmp_path), "asynchronous": asynchronous, **small}
    for steps in (1, 2):
        run = train(from_mapping({**settings, "steps": steps}))
        assert run.max_tokens == 4
        files = sorted((tmp_path / "trajectories").glob("*"))
        turns = [turn for file in files for t in read(file) for turn in t.turns]
        assert max(len(call.ids) for turn in turns for call in turn.action.calls) == 4


def test_the_length_of_replies_depends_on_the_template(thinking_model: str, tmp_path: Path) -> None:
    lengths = {}
    for thinking in ("auto", "on"):
        trainer = trainer_of(tmp_path / thinking, model=thinking_model, thinking=thinking)
        assert trainer.player.agent().sampling.max_tokens == trainer.learner.config.sampling.max_tokens
        lengths[thinking] = trainer.player.agent().sampling.max_tokens
    assert lengths == {"auto": 512, "on": 4096}


def test_an_episode_without_thinking_is_one_sample_and_cut_replies_are_reported(
    thinking_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"model": thinking_model, "max_tokens": 4}
    episodes, lines = episodes_of(tmp_path / "auto", **options)
    assert [len(to_samples(episode)) for episode in episodes] == [1] * 4
    warnings = [line for line in lines if line.startswith("warning:")]
    assert len(warnings) == 1, lines
    assert "of the replies were cut at 4 tokens" in warnings[0]
    assert "Raise --max-tokens" in warnings[0]
    train(from_mapping({**TINY, **options, "out": str(tmp_path / "off"), "keep_thinking": "off"}))
    assert "of the replies were cut at 4 tokens" in caplog.text, "without a log, the warning goes to Python's logging"
    split = read(tmp_path / "off" / "trajectories" / "step-000000.jsonl.gz")
    assert [len(to_samples(episode)) for episode in split] == [3] * 4
    rows = trainer_of(tmp_path / "auto", **options).metrics.rows
    assert [row["step"] for row in rows] == [-1, 0], "the run resumes with the same settings"


def test_summaries_are_trained(tmp_path: Path) -> None:
    options = {"context": "summary", "context_turns": 1, "summary_tokens": 5}
    episodes, _ = episodes_of(tmp_path, model="default:0.1M", max_tokens=4, **options)
    for episode in episodes:
        calls = [call for turn in episode.turns for call in turn.action.calls]
        assert [call.kind for call in calls] == ["act", "act", "summary", "act"]
        samples = to_samples(episode)
        sampled = [token for row in samples for token, mask in zip(row.ids, row.mask, strict=True) if mask]
        assert sampled == [token for call in calls for token in call.ids]


def test_tools_are_described_by_the_template(tmp_path: Path) -> None:
    episodes, _ = episodes_of(tmp_path, model="default:0.1M", tools=["python"], style="tools", max_tokens=4)
    prompt = default_model.default_tokenizer().decode(episodes[0].turns[0].action.calls[0].prompt_ids)
    assert prompt.startswith("<|im_start|>system\nYou may call these functions")
    assert '"name": "python"' in prompt
    assert prompt.count("python") < 5, "the environment's own description of the tool is left out"


def test_the_warm_start_uses_the_format_of_the_agent() -> None:
    tokenizer = default_model.default_tokenizer()
    player = Demonstrator(tokenizer, "random", max_tokens=64, settings=AgentSettings(style="react", system="Play."))
    (episode,) = asyncio.run(collect(player, str(TINY["env"]), episodes=1, seed=1)).trajectories
    assert [turn.action.text for turn in episode.turns] == ["a"] * 3
    call = episode.turns[0].action.calls[0]
    assert tokenizer.decode(call.ids) == "Action: a<|im_end|>"
    assert tokenizer.decode(call.prompt_ids).startswith(
        "<|im_start|>system\nPlay.\n\nAnswer every message in two parts"
    )

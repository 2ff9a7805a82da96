"""Test config sections, recipes and their error messages."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from palestra.agents import AgentSettings
from palestra.algorithms import GRPO, GRPOConfig, algorithm_names, get_algorithm, register
from palestra.algorithms.options import flat_name
from palestra.errors import BadValue
from palestra.training.config import TrainConfig
from palestra.training.config_values import parse_weight
from palestra.training.recipe import FLAT, from_mapping, merge, read_recipe
from palestra.training.sections import SECTIONS, EnvConfig

GAME = "game:GuessTheNumber-v0-easy"
URL = "http://host:8100/game:Wordle-v0-easy"
UNTRAINED: dict[str, Any] = {
    "gamma": 0.9,
    "gamma_dense": 0.3,
    "target_kl": 0.03,
    "kl_backtrack": 0.06,
    "entropy": 0.01,
    "entropy_floor": 0.3,
    "entropy_failed": 10.0,
    "kl_unsolved": 0.1,
    "cut_penalty": 0.1,
    "is_correction": "stale",
}  # defaults for untrained models


def test_a_recipe_has_one_table_per_section(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(
        f'[env]\nname = "{GAME}"\ntools = ["python"]\n[env.kwargs]\nmax_turns = 3\n'
        '[sampling]\nepisodes = 64\n[algorithm]\nname = "grpo"\nnormalize = "none"\n[optimizer]\nlr = 1\n'
    )
    config = from_mapping(read_recipe(path))
    assert config.env.name == (GAME,)
    assert config.env.kwargs == {"max_turns": 3}
    assert config.env.all_wrappers == (("Tools", {"tools": ["python"], "max_calls": None}),)
    assert (config.sampling.episodes, config.sampling.group_size, config.optimizer.lr) == (64, 8, 1.0)
    assert config.algorithm == GRPO(normalize="none", **UNTRAINED)
    assert from_mapping(merge(read_recipe(path), {"lr": 0.5, "gamma": 0.8})).algorithm.config.gamma == 0.8
    assert from_mapping(merge(read_recipe(path), {"algorithm": "ppo"})).algorithm.name == "ppo"


def test_a_saved_config_is_read_back() -> None:
    for settings in (
        {"env": [GAME, "game:Sudoku-v0-easy=3"], "steps": 7},
        {"algorithm": "dpo", "data": "runs/a", "dpo_beta": 0.3},
        {"env": GAME, "algorithm": "agentevol", "wrappers": ["Horizon(turns=5)"]},
    ):
        config = from_mapping(settings)
        assert from_mapping(json.loads(json.dumps(config.to_dict()))) == config


def test_the_algorithm_may_be_a_name_a_class_or_a_config() -> None:
    given = (
        {"algorithm": "grpo", "gamma": 0.5},
        {"algorithm": GRPO, "gamma": 0.5},
        {"algorithm": GRPOConfig(gamma=0.5)},
        {"algorithm": GRPO(gamma=0.5)},
    )
    want = GRPO(**{**UNTRAINED, "gamma": 0.5})
    assert {from_mapping({"env": GAME, **settings}).algorithm for settings in given} == {want}


def test_only_untrained_models_without_a_teacher_are_pulled_to_their_start_in_unsolved_states(taught: str) -> None:
    def coefficient(**settings: Any) -> Any:
        return vars(from_mapping({"env": GAME, **settings}).algorithm.config)["kl_unsolved"]

    assert coefficient() == coefficient(algorithm="ppo") == 0.1
    assert coefficient(model=taught) == coefficient(algorithm="distill", teacher=taught) == 0
    assert coefficient(model=taught, kl_unsolved=0.2) == 0.2


def test_the_baseline_of_reinforce_is_an_option() -> None:
    assert from_mapping({"env": GAME, "algorithm": "reinforce", "baseline": True}).algorithm.config.baseline is True


def test_defaults_depend_on_the_model_and_the_algorithm() -> None:
    untrained, trained = (from_mapping({"env": GAME, "model": model}) for model in ("default:1M", "Qwen/Qwen3-1.7B"))
    assert (untrained.optimizer.name, untrained.optimizer.lr) == ("muon", 1e-2)
    assert (trained.optimizer.name, trained.with_model_size(2 * 10**9).optimizer.lr) == ("adamw", 1e-6)
    assert (untrained.algorithm.config.entropy, trained.algorithm.config.entropy) == (0.01, 0.0)
    assert from_mapping({"env": GAME, "algorithm": "rloo"}).sampling.group_size == 8
    sft = from_mapping({"algorithm": "sft", "data": "x"})
    assert (sft.run.steps, sft.optimizer.epochs, sft.optimizer.lr, sft.optimizer.name) == (0, 2, 1e-3, "adamw")
    assert from_mapping({"algorithm": "sft", "data": "x", "model": "Qwen/Qwen3-1.7B"}).optimizer.lr == 1e-5
    assert TrainConfig(env=EnvConfig(name=(GAME,))) == from_mapping({"env": GAME})


def test_a_pretrained_model_imitates_with_a_low_learning_rate() -> None:
    untrained, trained, lora = (
        from_mapping({"env": GAME, "warm_start": 8, **model}).with_model_size(2 * 10**9).warm_start
        for model in ({}, {"model": "Qwen/Qwen3-1.7B"}, {"model": "Qwen/Qwen3-1.7B", "lora_rank": 16})
    )
    assert (untrained.epochs, untrained.lr, untrained.observations) == (3, 8e-3, True)
    assert (trained.epochs, trained.lr, trained.observations) == (1, 1e-5, False)
    assert lora.lr == pytest.approx(2e-4)


@pytest.mark.parametrize(("player", "small"), [("random", 5e-5), ("expert", 4e-4)])
def test_small_pretrained_models_have_higher_learning_rates(player: str, small: float) -> None:
    config = from_mapping({"env": GAME, "model": "org/model", "warm_start": 8, "warm_player": player})

    def rates(parameters: int) -> tuple[float, float]:
        resolved = config.with_model_size(parameters)
        assert from_mapping(json.loads(json.dumps(resolved.to_dict()))) == resolved
        return resolved.optimizer.lr, resolved.warm_start.lr

    assert rates(10**5) == rates(135 * 10**6) == (5e-5, small)
    assert rates(1_700_000_000) == rates(8 * 10**9) == (1e-6, 1e-5)
    sizes = [rates(parameters) for parameters in range(135 * 10**6, 1_700_000_000, 10**8)]
    for rate in zip(*sizes, strict=True):
        assert list(rate) == sorted(set(rate), reverse=True), "the rate falls with the size"


def test_given_learning_rates_do_not_depend_on_the_size_of_the_model() -> None:
    given = {"lr": 3e-6, "warm_lr": 2e-5}
    for settings in ({"model": "org/model", **given}, {"model": "org/model", "lora_rank": 8}, {"model": "default:1M"}):
        config = from_mapping({"env": GAME, **settings})
        assert config.with_model_size(10**8) == config.with_model_size(10**10) == config


def test_a_pretrained_model_imitates_an_expert_in_rounds_of_1000_episodes() -> None:
    def warm_start(**settings: Any) -> tuple[int, int, int]:
        config = from_mapping({"env": GAME, "model": "org/model", **settings})
        options = config.warm_start
        return options.count(trained=config.model.trained), options.rounds, options.batch

    expert = {"warm_player": "expert"}
    assert warm_start(**expert) == (16000, 16, 32)
    assert warm_start(**expert, warm_start=4500) == (4500, 4, 32)
    assert warm_start(**expert, warm_start=200) == (200, 1, 16)
    assert warm_start(**expert, warm_rounds=1, warm_batch=8) == (16000, 1, 8)
    assert warm_start() == (0, 1, 16)
    assert warm_start(model="default:1M", **expert) == (3000, 1, 16)


def test_a_recipe_sets_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(
        f'[env]\nname = "{GAME}"\n[agent]\nsystem = "Play."\nstyle = "tools"\ncontext = "summary"\n'
        '[agent.template_kwargs]\nreasoning_effort = "low"\n[sampling]\nstop = "END"\n[eval]\ntemperature = 0\n'
    )
    config = from_mapping(read_recipe(path))
    assert config.agent == AgentSettings(
        system="Play.", style="tools", context="summary", template_kwargs={"reasoning_effort": "low"}
    )
    assert config.sampling.stop == ("END",)
    assert (config.eval_temperature, from_mapping({"env": GAME, "temperature": 0.5}).eval_temperature) == (0.0, 0.5)
    assert from_mapping(merge(read_recipe(path), {"thinking": "on"})).agent.thinking == "on"
    assert from_mapping(json.loads(json.dumps(config.to_dict()))) == config
    old = {"env": GAME, "sampling": {"system": "Play."}}
    assert from_mapping(old).agent.system == "Play.", "system was a setting of [sampling]"


def test_lora_has_a_higher_default_learning_rate() -> None:
    lora = {"model": "Qwen/Qwen3-1.7B", "lora_rank": 16}
    assert from_mapping({"env": GAME, **lora}).optimizer.lr == pytest.approx(2e-5)
    assert from_mapping({"algorithm": "sft", "data": "x", **lora}).optimizer.lr == pytest.approx(2e-4)
    assert from_mapping({"env": GAME, **lora, "lr": 1e-6}).optimizer.lr == 1e-6
    assert from_mapping({"env": GAME, **lora, "model": "default:1M"}).optimizer.lr == 1e-2


def test_the_folder_is_named_after_the_run() -> None:
    assert from_mapping({"env": GAME, "seed": 3}).folder == Path("runs/GuessTheNumber-v0-easy-rebn-3")
    assert from_mapping({"env": GAME, "out": "x/y"}).folder == Path("x/y")
    assert "/" not in from_mapping({"env": f"{URL}?max_turns=5"}).folder.name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"env": GAME, "epissodes": 3}, "no setting named 'epissodes'. Did you mean episodes"),
        ({"env": {"nam": GAME}}, r"\[env\] has no setting 'nam'. Did you mean name"),
        ({"env": GAME, "sampling": {"episode": 3}}, r"\[sampling\] has no setting 'episode'. Did you mean episodes"),
        ({"env": GAME, "algorithm": {"name": "grpo", "gama": 1}}, "grpo has no option 'gama'. Did you mean gamma"),
        ({"env": GAME, "lam": 0.9}, "rebn has no option 'lam'; it is an option of ppo, ppo_token"),
        ({"env": GAME, "data": "x"}, "it is an option of agentevol, sft, dpo"),
        ({}, "name at least one environment"),
        ({"algorithm": "sft"}, "sft trains on stored trajectories"),
        ({"env": GAME, "algorithm": "grop"}, "no algorithm named 'grop'. Did you mean grpo"),
        ({"env": GAME, "steps": 0}, "steps must be at least 1"),
        ({"env": GAME, "steps": "5"}, "steps must be an integer"),
        ({"env": GAME, "steps": True}, "steps must be an integer"),
        ({"env": GAME, "episodes": 10, "group_size": 4}, "multiple of group_size"),
        ({"env": GAME, "gamma": 1.5}, r"gamma must be in \[0, 1\], got 1.5"),
        ({"env": GAME, "algorithm": "rloo", "group_size": 1}, "group_size must be at least 2"),
        ({"env": GAME, "horizon": "5,10"}, "needs the number of steps per stage"),
        ({"env": GAME, "horizon": "10,5@3"}, "must not decrease"),
        ({"env": GAME, "top_p": 0.9}, "biases its gradient. Use --top-p 1"),
        ({"env": GAME, "env_backend": "threads"}, "env_backend must be one of inline, thread, process, ray"),
        ({"env": GAME, "env_kwargs": "[1]"}, "env_kwargs must be a JSON object|kwargs must be a JSON object"),
        ({"env": GAME, "max_tool_calls": 3}, "max_tool_calls requires tools"),
        ({"env": GAME, "algorithm": "agentevol", "asynchronous": True}, "no asynchronous trainer"),
        ({"env": GAME, "sampling": {"style": "react"}}, r"no setting 'style'. It is a setting of \[agent\]"),
        ({"env": GAME, "run": {"max_turns": 3}}, r"no setting 'max_turns'. Did you mean horizon in \[env\]\?"),
        ({"env": GAME, "style": "rect"}, "style must be one of plain, react, tools"),
        ({"env": GAME, "template_kwargs": "[1]"}, "template_kwargs must be a JSON object"),
        ({"env": GAME, "eval_temperature": -0.5}, "eval_temperature must be -1 or at least 0"),
        ({"env": GAME, "top_k": 5}, "top_k=5 samples from a filtered distribution"),
        ({"env": GAME, "min_p": 0.1}, "min_p=0.1 samples from a filtered distribution"),
        ({"env": GAME, "temperature": 0.0, "asynchronous": True}, "needs a temperature above 0"),
    ],
)
def test_invalid_settings_are_reported(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        from_mapping(values)


@pytest.mark.parametrize(
    ("text", "name", "weight"),
    [
        (GAME, GAME, 1.0),
        (f"{GAME}=2.5", GAME, 2.5),
        (URL, URL, 1.0),
        (f"{URL}=3", URL, 3.0),
        (f"{URL}?max_turns=5", f"{URL}?max_turns=5", 1.0),
        (f"{URL}?a=x&max_turns=5", f"{URL}?a=x&max_turns=5", 1.0),
        (f"{URL}?max_turns=5=2", f"{URL}?max_turns=5", 2.0),
    ],
)
def test_environment_weights_are_parsed(text: str, name: str, weight: float) -> None:
    assert parse_weight(text) == (name, weight)
    assert from_mapping({"env": text}).env.weights == {name: weight}


@pytest.mark.parametrize("text", [f"{GAME}=x", f"{GAME}=0", f"{GAME}=-1"])
def test_invalid_environment_weights_are_rejected(text: str) -> None:
    with pytest.raises(BadValue, match="weight"):
        from_mapping({"env": text})


def test_environment_weights_from_a_mapping() -> None:
    assert from_mapping({"env": {GAME: 2, URL: 1}}).env.weights == {GAME: 2.0, URL: 1.0}


def test_every_option_has_a_help_sentence_and_one_meaning() -> None:
    helps: dict[str, str] = {}
    kinds = [*SECTIONS.values(), *(get_algorithm(name).config_class for name in algorithm_names())]
    for kind in kinds:
        for item in fields(kind):
            text = item.metadata["help"]
            assert text[0].isupper(), text
            assert text.endswith("."), text
            assert len(text.split()) > 2, text
            assert helps.setdefault(flat_name(item), text) == text, f"{flat_name(item)} has two different help texts"
    assert len(FLAT) == sum(len(fields(kind)) for kind in SECTIONS.values())


def test_unreadable_recipes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="does not exist"):
        read_recipe(tmp_path / "none.toml")
    path = tmp_path / "r.toml"
    path.write_text("env = ")
    with pytest.raises(BadValue, match="is not valid TOML"):
        read_recipe(path)
    path.write_text("episodes = 1\n")
    (tmp_path / "table.toml").write_text("[optimiser]\nlr = 1\n")
    with pytest.raises(BadValue, match=r"there is no table \[optimiser\]. Did you mean optimizer\?"):
        read_recipe(tmp_path / "table.toml")
    with pytest.raises(BadValue, match=r"'episodes' is outside of a table; write it as \[sampling\] episodes"):
        read_recipe(path)
    path.write_text("learning_rate = 1\n")
    with pytest.raises(BadValue, match=r"'learning_rate' is outside of a table; write it as \[optimizer\] lr"):
        read_recipe(path)


def test_an_algorithm_is_registered_once() -> None:
    with pytest.raises(BadValue, match="already exists"):

        @register
        class Other(GRPO):
            name = "grpo"

"""Test suggestions for unknown names, and the short and full help of `palestra train`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from palestra.cli import VERBS, main
from palestra.suggestions import suggest
from palestra.training.recipe import FLAT, from_mapping, read_recipe


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--learning-rate", "lr"),
        ("--batch-size", "episodes"),
        ("--learning-rat", "lr"),
        ("max-turns", "horizon"),
        ("--gama", "gamma"),
        ("gmama", "gamma"),
        ("EPISODES", "episodes"),
        ("--frobnicate", None),
        ("x", None),
    ],
)
def test_settings(given: str, meant: str | None) -> None:
    assert suggest(given, FLAT | {"gamma": ("algorithm", "gamma")}) == meant


def test_interchanged_letters_are_preferred() -> None:
    assert suggest("gpro", ["gspo", "grpo"]) == "grpo"


@pytest.mark.parametrize(
    ("given", "meant"), [("trian", "train"), ("evaluate", "eval"), ("list", "envs"), ("qqq", None)]
)
def test_verbs(given: str, meant: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert suggest(given, VERBS) == meant
    with pytest.raises(SystemExit, match="2"):
        main([given])
    message = capsys.readouterr().err
    assert f"there is no verb {given!r}" in message
    assert (f"Did you mean {meant}?" in message) == (meant is not None)


def test_unknown_option_is_rejected_with_its_synonym(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--learning-rate", "1"])
    assert "Did you mean --lr?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["eval", "--num-episodes", "3"])
    assert "Did you mean -n?" in capsys.readouterr().err


def test_unknown_agent_is_rejected_before_a_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "game:Sudoku-v0-easy", "--agent", "exprt"]) == 2
    assert "Did you mean expert?" in capsys.readouterr().err


def test_help_describes_common_options_and_help_all_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit, match="0"):
            main(["train", option])
        texts.append(capsys.readouterr().out)
    short, full = texts
    assert "--env NAME" in short
    assert "--clip-dual" not in short
    assert "`palestra train --help-all`" in short
    assert "--clip-dual" in full
    assert short.count("\n") < full.count("\n") / 3


def test_dry_run_prints_settings_and_estimate_without_creating_a_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    settings: dict[str, Any] = {"env": "game:GuessTheNumber-v0-easy", "lr": 0.25, "env_kwargs": {"max_turns": 3}}
    flags = [
        "--lr",
        "0.25",
        "--env-kwargs",
        '{"max_turns": 3}',
        "--system",
        'Say "é\n😀"',
        "--stop",
        "a",
        "--stop",
        "b",
    ]
    assert main(["train", "--env", settings["env"], *flags, "--out", str(out), "--dry-run"]) == 0
    text = capsys.readouterr().out
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text[: text.index("model: ")])
    settings |= {"system": 'Say "é\n😀"', "stop": ["a", "b"], "out": str(out)}
    assert from_mapping(read_recipe(recipe)) == from_mapping(settings)
    assert "[optimizer]" in text
    assert "lr = 0.25" in text
    assert "104,752 parameters" in text
    assert "memory: about" in text
    assert "not enough" not in text
    assert "for the warm start (3,000 episodes)" in text
    assert not out.exists()


@pytest.mark.slow
def test_dry_run_states_that_the_memory_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", "default:100M", "--episodes", "100000", "--token-budget", "99999999", "--warm-start", "0"]
    flags += ["--gradient-checkpointing", "off"]
    assert main(["train", "--env", "game:GuessTheNumber-v0-easy", *flags, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "the memory is not enough for one process: lower --token-budget" in text
    assert "warm start (" not in text
    sampling = next(line for line in text.splitlines() if "while sampling" in line)
    needed, _, memory = sampling.removeprefix("memory: about ").partition(" of ")
    assert needed.endswith(" GB")
    assert float(needed.split()[0]) < float(memory.split()[0]), "the KV cache is limited to a part of the memory"


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "agentevol"])
def test_dry_run_estimates_a_warm_start_only_if_there_is_one(
    algorithm: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    env, folder = "game:GuessTheNumber-v0-easy", str(tmp_path / "played")
    evaluate = ["eval", env, "--agent", "random", "--set", "split=train", "-n", "8", "-k", "4"]
    assert main([*evaluate, "--out", folder]) == 0
    capsys.readouterr()
    assert main(["train", "--env", env, "--algorithm", algorithm, "--data", folder, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "for the warm start" not in text
    assert "for 0 steps" not in text
    if algorithm == "agentevol":  # without data, it imitates the random player first
        assert main(["train", "--env", env, "--algorithm", algorithm, "--dry-run"]) == 0
        assert "for the warm start" in capsys.readouterr().out


@pytest.mark.slow
def test_dry_run_shows_the_learning_rates_for_the_size_of_a_pretrained_model(
    taught: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = "game:GuessTheNumber-v0-easy"
    assert main(["train", "--env", env, "--model", taught, "--warm-player", "expert", "--dry-run"]) == 0
    tables = tomllib.loads(capsys.readouterr().out.partition("model: ")[0])
    assert tables["optimizer"]["lr"] == 5e-5
    assert {name: tables["warm_start"][name] for name in ("lr", "rounds", "batch")} == {
        "lr": 4e-4,
        "rounds": 16,
        "batch": 32,
    }


@pytest.mark.parametrize(
    ("options", "kwargs"),
    [
        (["--set", "max_turns=7"], {"clues": 13, "max_turns": 7}),  # the recipe's other arguments are kept
        (["--env-kwargs", '{"clues": 12}', "--set", "max_turns=7"], {"clues": 12, "max_turns": 7}),
        ([], {"clues": 13, "max_turns": 5}),
    ],
    ids=["recipe", "env-kwargs", "without"],
)
def test_set_changes_one_keyword_argument_of_the_environment(
    options: list[str], kwargs: dict[str, int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[env]\nname = "game:Sudoku-v0-easy"\nkwargs = {clues = 13, max_turns = 5}\n')
    assert main(["train", str(recipe), *options, "--dry-run"]) == 0
    assert tomllib.loads(capsys.readouterr().out.partition("model: ")[0])["env"]["kwargs"] == kwargs


@pytest.mark.parametrize("options", [["--model", "/nonexistent"], ["--env-kwargs", '{"max_turns": -3}']])
def test_failed_start_leaves_no_folder(options: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", "--env", "game:GuessTheNumber-v0-easy", "--out", str(out), "--quiet", *options]) == 2
    assert not out.exists()
    out.mkdir()  # an existing folder is preserved
    assert main(["train", "--env", "game:GuessTheNumber-v0-easy", "--out", str(out), "--quiet", *options]) == 2
    assert out.exists()


def test_end_of_a_run_says_why_and_what_to_do_next(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--steps", "1", "--episodes", "4", "--warm-start", "2", "--eval-episodes", "4", "--no-store", "--plain"]
    run = ["train", "--env", "game:GuessTheNumber-v0-easy", "--out", str(tmp_path / "run"), *options]
    assert main(run) == 0
    text = capsys.readouterr().out
    assert text.startswith("training default:0.1M on game:GuessTheNumber-v0-easy with rebn; loading PyTorch\n")
    assert "The run ended after the last step (1)." in text
    assert text.rstrip().endswith(f"palestra train --out {tmp_path / 'run'} --resume --steps 2")

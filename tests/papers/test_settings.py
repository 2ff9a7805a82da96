"""Test the settings of the runs in recipes/papers."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from palestra.training.recipe import from_mapping, read_recipe
from tests.papers.scripts import PAPERS, SCRIPTS, module


@pytest.mark.parametrize("script", SCRIPTS)
def test_all_settings_of_a_script_are_valid(script: str) -> None:
    flags_of, model_settings = module("settings").flags_of, module("plan").model_settings
    for question in module(script).QUESTIONS.values():
        for name in (None, "default:1M", "org/pretrained"):
            for run in question.plan(question.seeds[:1], model_settings(name), []):
                for one in filter(None, (run, run.start)):
                    config = from_mapping(one.settings)
                    assert "--out" not in flags_of(one.settings)
                    assert name is None or config.model.name == name
                    assert not config.model.trained or config.warm_start.lr < 1e-3  # 8e-3 is for untrained models
        assert len(set(question.seeds)) >= 8


def test_algorithms_are_run_with_the_best_rate_of_the_grid() -> None:
    gem = module("gem")
    rows = [
        {"question": "rates", "model": "default:0.1M", "task": run.task, "variant": run.variant, "final": 0.5}
        for run in gem.tuning({})
        if run.variant.startswith("ppo,")
    ]
    assert gem.rate_of("ppo", rows[:-1], "default:0.1M") is None  # a run is missing
    rows[3]["final"] = 0.6
    assert rows[3]["variant"] == "ppo, 0.01"
    runs = [run for run in gem.algorithms([11], {}, rows) if run.question == "algorithms"]
    assert {(run.variant, run.settings["lr"]) for run in runs} == {("ppo", 0.01)}
    assert len(runs) == len(gem.TASKS) == 5


def test_a_model_that_was_trained_from_scratch_keeps_the_defaults_for_untrained_models(tmp_path: Path) -> None:
    gem = module("gem")
    settings = module("settings").untrained_defaults({**gem.COMMON, **gem.GUESS, "gamma": 0.5}, str(tmp_path))
    wanted, config = from_mapping({**gem.COMMON, **gem.GUESS, "gamma": 0.5}), from_mapping(settings)
    assert config.model.name == str(tmp_path)
    assert config.optimizer == wanted.optimizer
    assert config.sampling == wanted.sampling
    assert config.algorithm.config == wanted.algorithm.config
    assert config.warm_start.episodes == 0


def test_finished_runs_are_recognized_after_options_were_added() -> None:
    """If this fails because of a new option, add it to `ADDED` in palestra/training/resume.py.

    If a default has changed, repeat the runs.
    """
    gem, runner, files, settings = map(module, ("gem", "runner", "files", "settings"))
    question = gem.QUESTIONS["discount"]
    args = runner.parser_of("", "gem", list(gem.QUESTIONS)).parse_args([])
    rows = files.results(args.results)
    runs = question.plan(question.seeds, {}, rows)
    missing = [run.variant for run in runs if not files.finished(rows, settings.key_of(run, args))]
    assert len(runs) == 24
    assert missing == []


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_games_in_the_documentation_were_run_with_the_current_defaults(device: str) -> None:
    stability, files = module("stability"), module("files")
    args = argparse.Namespace(gpu=device == "gpu", set=[], label="defaults", jobs=1, workers=2, gpu_share=1.0)
    rows = files.results(stability.RESULTS)
    games = (*stability.USUAL, "textcraft_pretrained") if args.gpu else ("demo",)
    keys = [stability.key_of(game, seed, args) for game in games for seed in stability.SEEDS]
    assert [key for key in keys if not files.finished(rows, key)] == []


def test_single_runs_are_given_as_game_and_seed() -> None:
    stability = module("stability")
    assert stability._pair("guess:105") == ("guess", 105)
    for text in ("guess", "guess:", "chess:1", "guess:x"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected GAME:SEED"):
            stability._pair(text)


def test_runs_that_share_a_gpu_limit_their_caches_without_changing_their_hash() -> None:
    settings = module("settings")
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    settings.add_gpu_flags(parser, workers=0)
    flags = ("--gpu", "--gpu --jobs 4", "--gpu --jobs 4 --gpu-share 0.5")
    alone, shared, half = (settings.hardware(parser.parse_args(text.split())) for text in flags)
    assert "kv_cache_gb" not in alone
    assert shared["kv_cache_gb"] == settings.SHARED_CACHE / 4 == 2 * half["kv_cache_gb"]
    assert shared["token_budget"] == 2 * half["token_budget"]
    for share in ("0", "1.5", "half"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--gpu-share", share])
    run = {"env": "game:A-v0", "model": "default:0.1M"}
    assert settings.digest(run) == settings.digest({**run, "kv_cache_gb": 12.0})
    assert settings.digest(run) != settings.digest({**run, "episodes": 64})


def test_the_recipe_for_textcraft_has_the_settings_of_its_runs() -> None:
    recipe = from_mapping(read_recipe(PAPERS.parent / "gpu" / "smollm2_textcraft.toml")).to_dict()
    on_cpu = argparse.Namespace(gpu=False, set=[])
    game = from_mapping(module("stability").settings_of("textcraft_pretrained", 0, on_cpu)).to_dict()
    for settings in (recipe, game):
        del settings["run"]
    assert recipe == game

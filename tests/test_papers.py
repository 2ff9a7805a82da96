"""Test the scripts in recipes/papers: statistics, settings, execution of runs, and the tables in the documentation."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import runpy
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from palestra.training.recipe import from_mapping, read_recipe
from tests import warm_process

PAPERS = Path(__file__).parent.parent / "recipes" / "papers"
SCRIPTS = ["gem", "agentgym"]
TASKS = st.dictionaries(st.text("abc", min_size=1), st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=1)


@pytest.fixture(scope="module", autouse=True)
def _path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PAPERS))
        yield
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(PAPERS))]:
        del sys.modules[name]  # other tests import a different module named "gem"


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_the_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    iqm = module("iqm").iqm
    assert iqm({"a": [8, 1, 2, 3, 4, 5, 6, 70]}) == 4.5  # mean of 3, 4, 5, 6
    assert iqm({"a": [0], "b": [1, 2], "c": [90]}) == 1.5  # over all tasks: mean of 1, 2
    assert iqm({"a": [0, 1, 2, 3, 9]}) == 2.0  # 5 / 4 is rounded down
    with pytest.raises(ValueError, match="at least one score"):
        iqm({"a": []})


def test_intervals_are_percentiles_of_resampled_runs() -> None:
    interval = module("iqm").interval
    # Two runs: the mean is 0, 0.5 and 1 with the probabilities 1/4, 1/2 and 1/4.
    assert interval({"a": [0, 1]}) == [0, 1]
    assert interval({"a": [0, 1]}, confidence=0.4) == [0.5, 0.5]
    # Runs are resampled within their task, so equal runs of different tasks have an interval without width.
    assert interval({"a": [0, 0, 0], "b": [1, 1, 1]}) == [0.5, 0.5]


@given(TASKS, st.floats(-2, 2), st.floats(0.1, 3))
def test_statistics_follow_shifts_and_scales(scores: dict[str, list[float]], shift: float, scale: float) -> None:
    stats = module("iqm")
    moved = {task: [scale * value + shift for value in values] for task, values in scores.items()}
    expected = [stats.iqm(scores), *stats.interval(scores, resamples=50)]
    assert [stats.iqm(moved), *stats.interval(moved, resamples=50)] == pytest.approx(
        [scale * value + shift for value in expected]
    )
    everything = [value for values in scores.values() for value in values]
    assert all(min(everything) - 1e-9 <= value <= max(everything) + 1e-9 for value in expected)


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


def test_exit_codes_and_time_limits(tmp_path: Path) -> None:
    runner, ended = module("runner"), module("files").ended
    assert runner.palestra(["--version"], tmp_path / "log", 60.0) == 0
    assert "palestra" in (tmp_path / "log").read_text()
    assert ended(runner.palestra(["no-such-command"], tmp_path / "log", 60.0)) == "failed with exit code 2"
    assert (
        ended(runner.palestra(["serve", "--port", "0"], tmp_path / "log", 0.0)) == "stopped"
    )  # does not end by itself


def test_a_process_runs_several_commands(tmp_path: Path) -> None:
    processes = module("processes")
    assert processes.palestra(["--version"], tmp_path / "first", 60.0) == 0
    (process,) = processes._idle
    assert processes.palestra(["envs", "no-such-env"], tmp_path / "second", 60.0) == 2
    assert processes._idle == [process]
    assert "palestra" in (tmp_path / "first").read_text()
    assert "no-such-env" in (tmp_path / "second").read_text()
    process.kill()
    assert processes.palestra(["--version"], tmp_path / "third", 60.0) == 0
    assert processes._idle != [process]


INTERRUPTED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import processes, runner

def serve():
    print("ended with", processes.palestra(["serve", "game:GuessTheNumber-v0-easy", "--port", "0"], log, 60.0))

def interrupt():
    while not log.exists() or not log.read_text():  # until the server has started
        time.sleep(0.05)
    raise KeyboardInterrupt

log = Path(sys.argv[2])
runner.run_jobs([serve, interrupt], 2)
"""


def test_an_interrupt_ends_the_running_commands(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", INTERRUPTED, str(PAPERS), str(tmp_path / "log")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted; the same command continues\n"
    assert done.stdout == "ended with None\n"


def test_a_model_that_was_trained_from_scratch_keeps_the_defaults_for_untrained_models(tmp_path: Path) -> None:
    gem = module("gem")
    settings = module("settings").untrained_defaults({**gem.COMMON, **gem.GUESS, "gamma": 0.5}, str(tmp_path))
    wanted, config = from_mapping({**gem.COMMON, **gem.GUESS, "gamma": 0.5}), from_mapping(settings)
    assert config.model.name == str(tmp_path)
    assert config.optimizer == wanted.optimizer
    assert config.sampling == wanted.sampling
    assert config.algorithm.config == wanted.algorithm.config
    assert config.warm_start.episodes == 0


def test_runs_are_recorded_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the smallest model for one step, evaluate it, and pack it as a release file."""
    runner, gem = module("runner"), module("gem")
    commands = []

    def palestra(arguments: list[str], log: Path, seconds: float) -> int:
        commands.append(arguments[0])
        done = warm_process.run([sys.executable, "-m", "palestra", *arguments], capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(done.returncode)

    monkeypatch.setattr(runner, "palestra", palestra)
    sizes = {"steps": 1, "episodes": 8, "warm_start": 16, "eval_episodes": 8, "concurrency": 8, "max_tokens": 8}
    first = module("plan").Run(
        question="test",
        task="guess",
        variant="first",
        seed=1,
        settings={**gem.COMMON, **gem.GUESS, **sizes},
        evaluations={"again": {**gem.GUESS, "n": 4, "k": 2}},
    )
    parser = runner.parser_of("", "test", ["test"])
    folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "test.jsonl")]
    args = parser.parse_args(["test", "--store", *folders])
    for _ in range(2):
        runner.execute(lambda rows: [first], args)
    assert commands == ["train", "eval"]
    rows = module("files").results(args.results)
    assert [(row["variant"], row["ended"], row["steps"]) for row in rows] == [("first", "finished", 1)]
    assert rows[0]["curve"]["step"] == [0, 1]
    assert 0 <= rows[0]["evaluations"]["again"]["pass@2"] <= 1
    assert 8 <= rows[0]["curve"]["tokens"][-1] <= 8 * 4 * 8  # 8 episodes with 1 to 4 replies of 1 to 8 tokens
    folder = runner.folder_of(first, args)
    assert (folder / "last" / "model.safetensors").exists()
    assert not list(folder.rglob("*.pt"))  # they are most of a run's size
    check_release_file(folder, tmp_path / "dist")


def test_a_failed_warm_start_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, gem, plan = module("runner"), module("gem"), module("plan")
    monkeypatch.setattr(runner, "palestra", lambda *_: 3)
    base = {**gem.COMMON, **gem.GUESS}
    runs = [plan.from_warm_start("test", "guess", name, 1, base, {"gamma": float(name)}) for name in ("1", "0.9")]
    folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "test.jsonl")]
    args = runner.parser_of("", "test", ["test"]).parse_args(["test", *folders])
    runner.execute(lambda rows: runs, args)
    rows = module("files").results(args.results)
    assert [(row["variant"], row["ended"]) for row in rows] == [("warm start", "failed with exit code 3")]


@pytest.mark.parametrize(("model", "optimizer"), [("default:0.1M", "muon"), ("org/pretrained", "adamw")])
def test_a_model_that_is_trained_further_keeps_its_kind_of_defaults(
    model: str, optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, gem, plan = module("runner"), module("gem"), module("plan")
    trained: list[dict[str, object]] = []

    def train(settings: dict[str, object], *_: object) -> int:
        trained.append(settings)
        return 0

    monkeypatch.setattr(runner, "train", train)
    common = {"question": "test", "task": "guess", "seed": 1}
    settings = {**gem.COMMON, **gem.GUESS, **plan.model_settings(model)}
    start = plan.Run(variant="start", settings=settings, **common)
    run = plan.Run(variant="further", settings=settings, start=start, **common)
    folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "test.jsonl")]
    args = runner.parser_of("", "test", ["test"]).parse_args(["test", *folders])
    runner.start_model(run, args).mkdir(parents=True)
    (runner.start_model(run, args) / "config.json").touch()
    runner.execute(lambda rows: [run], args)
    config = from_mapping(trained[0])
    assert len(trained) == 1
    assert config.optimizer.name == optimizer
    assert config.warm_start.episodes == 0
    assert config.model.name == str(runner.start_model(run, args))


def test_horizons_of_a_pretrained_model_start_from_the_same_imitation_of_the_expert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, agentgym, plan = module("runner"), module("agentgym"), module("plan")
    trained: list[dict[str, object]] = []

    def train(settings: dict[str, object], folder: Path, _: float) -> int:
        trained.append(settings)
        (folder / "checkpoints" / "step-0").mkdir(parents=True)
        (folder / "checkpoints" / "step-0" / "config.json").touch()
        return 0

    monkeypatch.setattr(runner, "train", train)
    folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "test.jsonl")]
    args = runner.parser_of("", "test", ["test"]).parse_args(["test", *folders, "--tasks", "TextCraft, depth 3"])
    runner.execute(lambda rows: agentgym.horizons([1], plan.model_settings("org/pretrained"), rows), args)
    start, *variants = map(from_mapping, trained)
    assert (start.model.name, start.warm_start.episodes, start.warm_start.rounds) == ("org/pretrained", 2000, 4)
    assert sorted(str(settings["horizon"]) for settings in trained[1:]) == ["20", "5", "5,10,20@10"]
    assert {config.model.name for config in variants} == {str(next(tmp_path.glob("runs/warm*/checkpoints/step-0")))}
    assert {config.warm_start.episodes for config in variants} == {0}


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


def check_release_file(run: Path, out: Path) -> None:
    """Pack a run twice, and check that the file contains a model that loads, its card and its trajectories."""
    release = runpy.run_path(str(PAPERS.parents[1] / "scripts" / "release_checkpoints.py"))
    assert release["main"]([str(run), "--out", str(out)]) == 0
    (path,) = out.glob("*.tar.gz")
    first = path.read_bytes()
    assert release["pack"](run, out).read_bytes() == first
    assert (out / "SHA256SUMS").read_text() == f"{hashlib.sha256(first).hexdigest()}  {path.name}\n"
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "run.json"} <= names
        assert "trajectories/step-000000.jsonl.gz" in names
        card = archive.extractfile(f"{run.name}/README.md")
        assert card is not None
        text = card.read().decode()
    assert "game:GuessTheNumber-v0-easy" in text
    assert f"{release['parameters'](run / 'last'):,} parameters" in text
    (run / "trajectories" / "step-000000.jsonl.gz").unlink()
    with pytest.raises(release["NotPacked"], match="--store"):
        release["pack"](run, out)


def test_tables_contain_the_latest_finished_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = module("report")
    rows = [
        {
            "question": "q",
            "model": "m",
            "task": task,
            "variant": "v",
            "seed": seed,
            "settings": settings,
            "set": [],
            "ended": ended,
            "final": value,
            "evaluations": {},
            "curve": {"step": [0, 5], "success": [0.5, value], "turns": [3, seed]},
        }
        for task, seed, settings, ended, value in [
            ("a", 1, "old", "finished", 0.9),
            ("a", 1, "new", "stopped", 0.9),
            ("a", 1, "new", "finished", 0.2),
            ("a", 2, "new", "finished", 0.2),
            ("b", 1, "new", "finished", 0.4),
            ("b", 2, "new", "finished", 0.4),
        ]
    ]
    (mine,) = report.current(rows, "q").values()
    assert report.matrix(mine, ["a", "b", "c"], ["v", "w"], report.final).splitlines() == [
        "| | a | b | all | seeds |",
        "|---|---|---|---|---|",
        "| v | 20.0% (20.0% to 20.0%) | 40.0% (40.0% to 40.0%) | 30.0% (30.0% to 30.0%) | 2 |",
    ]
    assert report.listing({"group": mine[:1]}, {"turns": (report.last_of("turns"), ".1f")}).endswith(
        "| group | 1.0 | 1 |"
    )
    assert [report.collapsed(row) for row in mine] == [1, 1, 0, 0]
    assert "failed runs, which are in the data file: 1." in report.section(rows, "q", "x", lambda _: "")
    monkeypatch.setattr(report, "DOCS", tmp_path)
    (tmp_path / "images").mkdir()
    for model, file in {
        "default:0.1M": "figure.png",
        "models/m": "figure-m.png",
        "default:1M": "figure-default-1M.png",
    }.items():
        panels = {"a": {"v": [{**row, "model": model} for row in mine[:2]], "w": []}, "d": {"v": []}}
        assert report.draw("figure", panels, "success", "success") == f"![success by step](images/{file})"
        assert (tmp_path / "images" / file).stat().st_size > 0


def test_success_before_and_after_rl_by_task() -> None:
    agentgym, files = module("agentgym"), module("files")
    envs = agentgym.SCENARIOS["TextCraft"][0]
    evaluations = [
        {"step": step, "eval_turns_per_episode": 3.0, "eval_success": 0.5}
        | {f"eval_success/{env}": rate + 0.1 * i for i, env in enumerate(envs)}
        for step, rate in [(-1, 0.2), (29, 0.6)]
    ]
    row = {"question": "tasks", "model": "default:0.1M", "task": "TextCraft", "variant": "rebn", "seed": 1}
    row |= {"settings": "a", "set": [], "ended": "finished", "curve": files.curve(evaluations, 8), "final": 0.5}
    lines = agentgym.tasks_report([row]).splitlines()
    assert lines[2] == "| TextCraft: textcraft:Depth1-v0 | 20.0% | 60.0% | +40.0% | 1 |"
    assert lines[5] == "| TextCraft: textcraft:Depth4-v0 | 50.0% | 90.0% | +40.0% | 1 |"
    assert len(lines) == 6
    assert agentgym.feedback_report([row]).splitlines()[2:] == ["| world with rules | 50.0% | 50.0% | +0.0% | 1 |"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_tables_are_generated_from_the_data(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = module("files")
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)  # drawing the figures takes seconds
    page = tmp_path / "papers.md"
    written = (files.DOCS / "papers.md").read_text()
    page.write_text(written)
    rows = files.results(PAPERS / "results" / f"{script}.jsonl")
    for name, question in module(script).QUESTIONS.items():
        files.write_section(page, f"{script} {name}", question.report(rows))
    assert page.read_text() == written, f"run: python recipes/papers/{script}.py --table"


def test_the_table_of_runs_with_default_settings_is_generated_from_the_data(tmp_path: Path) -> None:
    stability, files = module("stability"), module("files")
    rows = files.results(stability.RESULTS)
    assert rows
    page = tmp_path / "experiments.md"
    page.write_text(stability.PAGE.read_text())
    files.write_section(page, "stability", stability.tables(rows))
    assert page.read_text() == stability.PAGE.read_text(), "run: python recipes/papers/stability.py --table"
    for game in stability.GAMES:
        config = from_mapping(stability.settings_of(game, 101, argparse.Namespace(gpu=False, set=[])))
        default = from_mapping({"env": "game:A-v0"}).optimizer.lr
        rate = module("plan").PRETRAINED["lr"] if config.model.trained else default
        assert config.optimizer.lr == rate, "no game has its own rate"


def test_the_summary_counts_runs_by_their_final_success() -> None:
    stability = module("stability")
    row = {"label": "defaults", "game": "guess", "target": 0.94, "reached": None, "steps": 400, "seconds": 9}
    row |= {"ended": "finished", "env_kwargs": stability.GAMES["guess"]["env_kwargs"]}
    runs = [
        {**row, "seed": 101, "success": [[400, 0.92]], "final": 0.93},
        {**row, "seed": 102, "success": [[400, 0.95]], "final": 0.89, "reached": 400},
        {**row, "seed": 102, "success": [[6, 0.7]], "final": None, "ended": "stopped"},
        {**row, "seed": 103, "success": [[6, 0.5]], "final": None, "ended": "stopped"},
        {**row, "seed": 103, "success": [[7, 0.6]], "final": None, "ended": "stopped", "steps": 500, "env_kwargs": {}},
        {**row, "seed": 104, "success": [[9, 0.91]], "final": 0.88, "reached": 9, "target": 0.9},
        {**row, "seed": 104, "success": [[6, 0.99]], "final": None, "ended": "stopped"},
    ]
    (line,) = [line for line in stability.summary(runs).splitlines() if line.startswith("| guess |")]
    assert line.startswith("| guess | 1 of 4 | 2 of 4 | 9 to 400 | 9 | 88.0% |")
    assert line.endswith("| 101: 92.0%, 400; 103: 50.0%, 6 |")


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


def test_times_of_different_machines_are_in_different_tables() -> None:
    gem, files = module("gem"), module("files")
    rows = [r for r in files.results(PAPERS / "results" / "gem.jsonl") if r["question"] == "async"]
    machines = list(dict.fromkeys(row["hardware"] for row in rows))
    report = gem.asynchronous_report(rows)
    assert all(f"On {machine}:" in report for machine in machines) == (len(machines) > 1)
    assert "On " not in gem.asynchronous_report([row for row in rows if row["hardware"] == machines[0]])


def test_the_recipe_for_textcraft_has_the_settings_of_its_runs() -> None:
    recipe = from_mapping(read_recipe(PAPERS.parent / "gpu" / "smollm2_textcraft.toml")).to_dict()
    on_cpu = argparse.Namespace(gpu=False, set=[])
    game = from_mapping(module("stability").settings_of("textcraft_pretrained", 0, on_cpu)).to_dict()
    for settings in (recipe, game):
        del settings["run"]
    assert recipe == game

"""Test how the scripts in recipes/papers execute runs and record their results."""

from __future__ import annotations

import hashlib
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from palestra.training.recipe import from_mapping
from tests import warm_process
from tests.papers.scripts import PAPERS, module


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
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import processes, runner

def serve():
    print("ended with", processes.palestra(["serve", "game:GuessTheNumber-v0-easy", "--port", "0"], log, 60.0))

def interrupt():
    while not log.exists() or not log.read_text():  # until the server has started
        time.sleep(0.05)
    if sys.argv[3] == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        raise KeyboardInterrupt

log = Path(sys.argv[2])
runner.run_jobs([serve, interrupt], 2)
"""


@pytest.mark.parametrize("kind", ["SIGINT", "SIGTERM"])
def test_an_interrupt_ends_the_running_commands(tmp_path: Path, kind: str) -> None:
    arguments = [sys.executable, "-c", INTERRUPTED, str(PAPERS), str(tmp_path / "log"), kind]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted; the same command continues\n"
    assert done.stdout == "ended with None\n"


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


HOLDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import files

with files.claimed(Path(sys.argv[2])) as free:
    print(free, flush=True)
    input()
"""


@pytest.mark.parametrize("script", ["stability", "gem"])
def test_a_run_that_another_process_is_making_is_left_to_it(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"stability": ["--runs", "demo:101"], "gem": ["discount", "--variants", "gamma 1", "--seeds", "1"]}
    data = tmp_path / "results.jsonl"
    command = [script, *arguments[script], "--out", str(tmp_path / "runs"), "--results", str(data)]
    monkeypatch.setattr(sys, "argv", command)
    tried: list[Path] = []

    def fail(settings: dict[str, Any], folder: Path, seconds: float) -> int:
        tried.append(folder)
        return 3

    runner = module("runner")
    monkeypatch.setattr(module("stability") if script == "stability" else runner, "train", fail)

    def main() -> None:
        runner._tried.clear()
        if script == "stability":
            module("stability").main()
        else:
            runner.main("", "gem", module("gem").QUESTIONS)

    main()
    (folder,) = tried
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(PAPERS), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        capsys.readouterr()
        main()
        assert capsys.readouterr().out == f"{folder.name}: another process is making this run\n"
        other.communicate("\n")
    main()
    assert tried == [folder] * 2
    assert [row["ended"] for row in module("files").results(data)] == ["failed with exit code 3"] * 2


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

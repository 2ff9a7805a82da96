"""Test the `palestra eval`, `compare` and `rescore` commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palestra.cli import main
from palestra.engines.default_model import default_model, save
from tests.engines.stub_server import Stub

GAME = "game:GuessTheNumber-v0-easy"
PLAYER = """
import time

def play(observation):
    return "\\\\boxed{5}"

def slow(observation):
    time.sleep(0.05)
    return "\\\\boxed{5}"

def broken(observation):
    raise RuntimeError("no idea")

def grade(trajectory):
    return True
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_players.py").write_text(PLAYER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_players", raising=False)


def palestra(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palestra", *args], capture_output=True, text=True, timeout=240, check=False
    )


def summary(folder: str) -> dict[str, dict[str, dict[str, float]]]:
    data: dict[str, dict[str, dict[str, float]]] = json.loads((Path(folder) / "summary.json").read_text())
    return data


def test_several_attempts_of_a_model_on_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with Stub("plain", context=8192, reply={"role": "assistant", "content": "\\boxed{[up]}"}) as server:
        args = ["eval", "--env", "game:Sokoban-v0-easy", "--model", server.url, "-n", "5", "-k", "4", "--out", "runs/a"]
        assert main([*args, "--price-in", "1", "--price-out", "3", "--max-tokens", "64", "--turns", "3"]) == 0
        text = capsys.readouterr().out
        assert "game:Sokoban-v0-easy" in text
        assert "pass@4" in text
        assert "cost $" in text
        count = server.count("/v1/chat/completions")
        assert count == 60
        # All episodes are finished, so none are played.
        assert main([*args, "--max-tokens", "64", "--turns", "3", "--quiet"]) == 0
        assert server.count("/v1/chat/completions") == count
    assert {path.name for path in Path("runs/a").iterdir()} == {
        "run.json", "episodes.jsonl", "summary.json", "report.html", "table.csv",
    }  # fmt: skip


def test_a_suite_with_the_expert_as_json() -> None:
    done = palestra("eval", "suite:games", "--agent", "expert", "--json", "-n", "2")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    rows = data["table"]["envs"]
    assert len(rows) == 25
    assert {row["success"] for row in rows if row["expert_success"] == 1.0} == {1.0}
    assert {row["name"] for row in data["table"]["categories"]} == {"deduction", "planning", "words", "navigation"}
    assert {row["name"] for row in data["table"]["levels"]} == {"easy", "hard", "random"}
    assert Path("runs/eval-games-expert/report.html").exists()


@pytest.mark.slow
def test_an_untrained_model_is_evaluated_with_the_reply_length_of_its_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny = ["--model", "default:0.1M", "--episodes", "8", "--warm-start", "16", "--eval-episodes", "4", "--steps", "1"]
    assert main(["train", "--env", GAME, *tiny, "--threads", "1", "--quiet", "--out", "runs/trained"]) == 0
    limit = json.loads(Path("runs/trained/last/generation_config.json").read_text())["max_new_tokens"]
    assert 0 < limit < 64
    rows = [json.loads(line) for line in Path("runs/trained/metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if "tokens_per_episode" in row:
            assert row["tokens_per_episode"] <= limit * row["turns_per_episode"]
    models = ("runs/trained", "runs/trained/last", "runs/trained/checkpoints/step-1")
    for number, model in enumerate(models):
        capsys.readouterr()
        assert main(["eval", GAME, "--model", model, "-n", "2", "--out", f"runs/eval-{number}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["agent"]["sampling"]["max_tokens"] == limit


@pytest.mark.slow
def test_a_training_run_is_accepted_as_model(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--model", "default:0.1M", "--episodes", "8", "--warm-start", "16", "--eval-episodes", "4", "--steps", "1"]
    sized = ["--threads", "1", "--max-tokens", "7", "--temperature", "0.9", "--eval-temperature", "0", "--quiet"]
    sized += ["--style", "react", "--system", "Play."]
    assert main(["train", "--env", GAME, *tiny, *sized, "--out", "runs/trained"]) == 0
    args = ["eval", "--env", GAME, "--model", "runs/trained", "-n", "6", "--seed", "900000", "--out", "runs/e"]
    assert main([*args, "--json"]) == 0
    shown = capsys.readouterr()
    data = json.loads(shown.out)
    assert "of the replies were cut at the maximum length. Raise --max-tokens" in shown.err
    agent = data["agent"]
    assert (agent["style"], agent["system"]) == ("react", "Play.")
    assert agent["folder"] in ("runs/trained/best", "runs/trained/last")
    assert (agent["sampling"]["max_tokens"], agent["sampling"]["temperature"]) == (
        7,
        0.0,
    )  # the evaluation uses the training run's sampling settings
    row = data["table"]["envs"][0]
    assert row["tokens_written"] <= 7 * row["turns"]
    seeds = sorted(json.loads(line)["seed"] for line in Path("runs/e/episodes.jsonl").read_text().splitlines())
    assert seeds == list(range(900000, 900006))
    with pytest.raises(SystemExit):
        main(["eval", "--env", GAME, "--model", "runs/trained", "--agent", "expert"])
    save(*default_model("0.1M", seed=5), Path("runs/trained/best"), overwrite=True)  # replace the weights
    assert main([*args, "--quiet"]) == 2
    assert "agent.weights" in capsys.readouterr().err


def test_a_python_function_on_a_custom_suite_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(f'n = 4\n[[env]]\nid = "{GAME}"\n[[env]]\nid = "math:Arithmetic-v0-easy"\n')
    assert main(["eval", "mine.toml", "--agent", "my_players:play", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("| environment | episodes |")
    assert Path("runs/eval-mine-my-players-play/table.csv").exists()


def test_compare_as_text_markdown_and_json_with_a_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    for agent, out in (("my_players:play", "runs/a"), ("expert", "runs/b")):
        assert main(["eval", GAME, "--agent", agent, "-n", "30", "--quiet", "--out", out]) == 0
    assert main(["compare", "runs/a", "runs/b"]) == 0
    printed = capsys.readouterr().out
    assert "difference (points)" in printed
    assert re.search(r"runs/b is better by [0-9.]+ points \(p = ", printed)
    assert main(["compare", "runs/a", "runs/b", "--markdown", "--fail-below", "0"]) == 0
    assert "| environment |" in capsys.readouterr().out
    assert main(["compare", "runs/b", "runs/a", "--json", "--fail-below", "-0.02"]) == 1
    output = capsys.readouterr()
    comparison = json.loads(output.out)
    assert comparison["failed"] is True
    assert comparison["total"]["difference"] < -0.02
    assert len(comparison["envs"][0]["losses"]) == comparison["total"]["losses"]
    assert "below -0.02" in output.err
    assert main(["compare", "runs/a", "runs/nowhere"]) == 2


def test_too_many_failed_episodes_exit_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["eval", GAME, "--agent", "my_players:broken", "-n", "4", "--retries", "0", "--quiet"]
    assert main(args) == 3
    errors = capsys.readouterr().err
    assert "4 of 4 episodes have no result" in errors
    assert "agent: RuntimeError: no idea" in errors
    assert main([*args, "--max-failed", "1"]) == 0


def test_rescore(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", GAME, "--agent", "my_players:play", "-n", "10", "--quiet", "--out", "runs/a"]) == 0
    assert main(["rescore", "runs/a", "--out", "runs/b"]) == 0
    assert "episodes: 10 same; 0 with a different outcome" in capsys.readouterr().out
    assert main(["rescore", "runs/a", "--out", "runs/c", "--grader", "my_players:grade", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["table"]["total"]["success"] == 1.0
    lost = sum(not before for before in (flip["before"] for flip in data["flips"]))
    assert lost == len(data["flips"]) > 0


def test_ctrl_c_keeps_finished_episodes() -> None:
    args = [GAME, "--agent", "my_players:slow", "-n", "200", "--concurrency", "2", "--out", "runs/a"]
    process = subprocess.Popen(
        [sys.executable, "-m", "palestra", "eval", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    path = Path("runs/a/episodes.jsonl")
    while not path.exists() or path.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Run the same command to resume" in err
    table = json.loads(Path("runs/a/summary.json").read_text())["table"]["total"]
    assert 4 <= table["episodes"] < 200
    assert table["missing"] == 200 - table["episodes"]
    assert Path("runs/a/report.html").exists()


def test_the_recorded_command_reproduces_the_table() -> None:
    assert (
        palestra("eval", GAME, "--agent", "random", "-n", "20", "-k", "2", "--quiet", "--out", "runs/a").returncode == 0
    )
    command = json.loads(Path("runs/a/run.json").read_text())["command"]
    assert shlex.join(command).startswith(f"palestra eval {GAME} --agent random")
    before = Path("runs/a/table.csv").read_bytes()
    assert palestra(*command[1:], "--overwrite").returncode == 0
    assert Path("runs/a/table.csv").read_bytes() == before


def test_suites_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--suites"]) == 0
    out = capsys.readouterr().out
    for name in ("games", "math", "code", "qa", "reasoning"):
        assert f"suite:{name}" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "no agent given"),
        (["--agent", "expert"], "nothing to evaluate on"),
        (["suite:gamse", "--agent", "expert"], "Did you mean suite:games"),
        (["game:Sudokku-v0-easy", "--agent", "expert"], "Did you mean game:Sudoku-v0-easy"),
        ([GAME, "--model", "expert"], "pass it as --agent expert"),
        ([GAME, "--agent", "my_players:missing"], "no attribute 'missing'"),
        ([GAME, "--agent", "expert", "-n", "0"], "n must be an integer of at least 1"),
        ([GAME, "--agent", "expert", "--max-failed", "2"], "a fraction from 0 to 1"),
        ([GAME, "--agent", "expert", "--concurrency", "0"], "--concurrency must be at least 1"),
        ([GAME, "--model", "./nowhere"], "no folder"),
    ],
)
def test_usage_errors_print_a_message_and_exit_with_2(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *args]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
def test_environments_run_in_every_backend_with_tools_and_wrappers(backend: str) -> None:
    options = ["--agent", "expert", "-n", "3", "--tools", "python", "--wrappers", "Statistics", "--quiet"]
    limits = ["--env-backend", backend, "--env-workers", "2", "--step-timeout", "60", "--reset-timeout", "60"]
    done = palestra("eval", GAME, *options, *limits, "--out", f"runs/{backend}")
    assert done.returncode == 0, done.stderr
    assert summary(f"runs/{backend}")["table"]["total"]["success"] == 1.0

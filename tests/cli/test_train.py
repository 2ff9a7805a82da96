"""Test the `palestra train` command: settings, output, interruption and resumption."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.algorithms import algorithm_names, get_algorithm
from palestra.algorithms.options import flat_name
from palestra.cli import main
from palestra.folders import MANIFEST, write_manifest
from palestra.training import checkpoint
from palestra.training.recipe import FLAT, from_mapping
from palestra.training.reporting.metrics import read
from palestra.training.sections import SECTIONS
from tests import warm_process

GAME = "game:GuessTheNumber-v0-easy"
TINY = [
    *("--env", GAME, "--model", "default:0.1M", "--episodes", "8", "--warm-start", "8", "--eval-episodes", "4"),
    *("--threads", "1", "--save-every", "1", "--eval-every", "2"),
]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def curve(folder: str) -> list[dict[str, Any]]:
    rows = read(Path(folder) / "metrics.jsonl")
    return [{k: v for k, v in row.items() if "second" not in k} for row in rows]


# Commands that finish before heavy modules are imported


def test_help_lists_every_setting_with_its_default_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help-all"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for kind in (*SECTIONS.values(), *(get_algorithm(name).config_class for name in algorithm_names())):
        for item in fields(kind):
            assert f"--{flat_name(item).replace('_', '-')}" in text
            if type(item.default) in (int, float):
                assert f"default: {item.default}" in text or f": {item.default}" in text
    for section in (*SECTIONS, "algorithm"):
        assert f"[{section}]:" in text


def test_help_states_each_default_once_and_the_defaults_that_algorithms_override(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    assert not re.search(r"default: (\S+) for an untrained model, otherwise \1", text)
    assert "(default: always with --engine vllm, stale otherwise)." in text
    assert "used only by rebn; default: yes for an untrained model, otherwise no)" in text
    assert "default: 80; for agentevol: 5; for sft, dpo: 0)" in text
    assert "for agentevol, sft, dpo: 0.001 for an untrained model, otherwise 1e-05)" in text
    assert "for gigpo: 0.95)" in text
    assert all(part.count("default: ") <= 1 for part in re.findall(r"\([^()]*\)", text))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name at least one environment"),
        (["--env", "game:Sudokku-v0-easy"], "Did you mean game:Sudoku-v0-easy"),
        (["--env", f"{GAME}=much"], "--env takes NAME or NAME=WEIGHT"),
        (["--env", GAME, "--algo", "grop"], "no algorithm named 'grop'. Did you mean grpo?"),
        (["--env", GAME, "--horizon", "5,10"], "needs the number of steps per stage"),
        (["--env", GAME, "--group-size", "7"], "multiple of group_size"),
        (["none.toml"], "the recipe none.toml does not exist"),
        (["game:Sudoku-v0"], "does not exist; to train on an environment, pass it as --env game:Sudoku-v0"),
        (["misspelt.toml"], "[sampling] has no setting 'epissodes'. Did you mean episodes?"),
        (["--env", GAME, "--resume"], "no run to resume in runs/GuessTheNumber-v0-easy-rebn-0"),
        (["--resume"], "pass --out FOLDER to select the run"),
        (["--resume", "--out", "nothing"], "nothing contains no run"),
        (["--report", "--out", "nothing"], "nothing contains no run"),
        (["--env", GAME, "--out", "letters", "--overwrite"], "letters is not empty and contains no training run"),
    ],
)
def test_usage_errors_print_one_sentence_and_exit_with_2(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("misspelt.toml").write_text(f'[env]\nname = "{GAME}"\n[sampling]\nepissodes = 3\n')
    Path("letters").mkdir()
    Path("letters/letter.txt").touch()
    assert main(["train", *args]) == 2
    done = capsys.readouterr()
    assert words in done.err
    assert done.err.count("\n") == 1
    assert Path("letters/letter.txt").exists()
    assert not Path("runs").exists(), "an invalid command must not create files"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--epissodes", "3"], "unrecognized arguments: --epissodes. Did you mean --episodes?"),
        (["--group_size=4"], "Did you mean --group-size?"),
        (["--episode", "3"], "Did you mean --episodes?"),
        (["--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["--json", "--quiet"], "not allowed with argument"),
    ],
)
def test_an_unknown_flag_is_rejected_with_the_nearest(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--env", GAME, *args])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_other_verbs_name_the_nearest_flag_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["envs", "--jsn"])
    assert "Did you mean --json?" in capsys.readouterr().err


def test_an_unwritable_folder_is_named_in_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--out", "/dev/null/run"]) == 3
    err = capsys.readouterr().err
    assert "cannot write to the folder /dev/null/run" in err
    assert "Choose another --out" in err
    Path("a_file").touch()
    assert main(["train", *TINY, "--out", "a_file"]) == 2
    assert "a_file is a file, not a folder" in capsys.readouterr().err


def test_help_and_usage_errors_do_not_import_torch() -> None:
    code = (
        "import sys\nfrom palestra.cli import main\n"
        "for args in (['--help'], ['--env', 'game:Nothing-v0'], ['--env', 'game:Sudoku-v0-easy', '--algo', 'x']):\n"
        "    try: main(['train', *args])\n"
        "    except SystemExit: pass\n"
        "print('HEAVY', *{'torch', 'transformers', 'numpy', 'matplotlib'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY"


def test_a_missing_extra_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["train", *TINY, "--out", "run"]) == 2
    assert "[train]'" in capsys.readouterr().err


# Runs


def test_an_imported_algorithm_is_used_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_algorithm.py").write_text(
        "from dataclasses import dataclass\n"
        "from palestra.algorithms import Advantages, PolicyGradient, PolicyGradientConfig, option, register\n\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class MineConfig(PolicyGradientConfig):\n"
        "    scale: float = option(1.0, 'Factor of the rewards.')\n\n"
        "@register\n"
        "class Mine(PolicyGradient):\n"
        "    name, config_class = 'mine', MineConfig\n"
        "    def advantages(self, episodes):\n"
        "        rows = [[self.config.scale * r for r in e.rewards] for e in episodes]\n"
        "        return Advantages(advantages=rows, metrics={'scale': self.config.scale})\n"
    )
    command = ["--import", "my_algorithm", "--algorithm", "mine", "--option", "scale=2", "--steps", "1", "--out", "run"]
    assert main(["train", *TINY, *command, "--quiet"]) == 0, capsys.readouterr().err
    assert curve("run")[-1]["scale"] == 2.0
    assert json.loads(Path("run/run.json").read_text())["config"]["algorithm"]["name"] == "mine"
    assert main(["train", "--out", "run", "--resume", "--steps", "2", "--quiet"]) == 0, (
        "imports are stored with the run"
    )


def test_an_unavailable_model_prints_one_line_and_does_not_block_the_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for model, words in (
        ("Qwen/Qwen3-1.7B", "`palestra init-model` creates a model that needs no download"),
        ("./nowhere", "there is no folder './nowhere'"),
        ("default:7M", "got '7M'"),
    ):
        assert main(["train", *TINY, "--out", "run", "--model", model]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1
    assert main(["train", *TINY, "--out", "run", "--steps", "1", "--quiet"]) == 0, (
        "the failed attempts must not block the folder"
    )
    assert capsys.readouterr() == ("", "")


def test_a_recipe_runs_resumes_and_is_overridden_by_flags(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = dict(zip(TINY[::2], TINY[1::2], strict=True))
    settings = {k.removeprefix("--").replace("-", "_"): int(v) if v.isdigit() else v for k, v in pairs.items()}
    tables: dict[str, str] = {}
    for name, value in {**settings, "lr": 0.5, "out": "runs/r"}.items():
        section, key = FLAT[name]
        tables[section] = tables.get(section, "") + f"{key} = {json.dumps(value)}\n"
    tables["run"] += "tensorboard = true\n"
    Path("r.toml").write_text("".join(f"[{section}]\n{lines}" for section, lines in tables.items()))
    assert main(["train", "r.toml", "--steps", "1", "--lr", "1e-3"]) == 0
    shown = capsys.readouterr()
    assert "Writing model shards" not in shown.out + shown.err
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert [line.split(",")[0].split(" ")[0] for line in lines] == [
        *("training", *["warm"] * 4, "before", "step", "report:", "curve:", "runs/r:", "final", "The"),
        *("", "next:", "", "", ""),
    ]
    assert json.loads(Path("runs/r/run.json").read_text())["config"]["optimizer"]["lr"] == 1e-3
    for name in ("report.html", "curve.png", "last/config.json", "tensorboard"):
        assert (Path("runs/r") / name).exists()

    # Repeating the command does nothing; changed settings are rejected.
    before = curve("runs/r")
    assert main(["train", "r.toml", "--steps", "1", "--lr", "1e-3", "--no-tensorboard"]) == 0
    assert "The run was already finished" in capsys.readouterr().out
    assert curve("runs/r") == before
    assert main(["train", "r.toml", "--steps", "1"]) == 2
    error = capsys.readouterr().err
    assert "different settings:\n  optimizer.lr: 0.001 -> 0.5\n" in error
    assert "palestra train --out runs/r --resume" in error

    # Resume without the recipe, with JSON output.
    assert main(["train", "--out", "runs/r", "--resume", "--steps", "2", "--json"]) == 0
    shown = capsys.readouterr()
    *rows, summary = [json.loads(line) for line in shown.out.splitlines()]
    assert [row["step"] for row in rows] == [1]
    assert summary["run"] == "runs/r"
    assert summary["steps"] == 2
    assert [row["step"] for row in curve("runs/r")] == [-1, 0, 1]
    assert "resumed from" in shown.err

    # Write the report again from the folder; then start over.
    page = Path("runs/r/report.html")
    text = page.read_bytes()
    page.unlink()
    assert main(["train", "--out", "runs/r", "--report"]) == 0
    assert page.read_bytes() == text
    capsys.readouterr()
    assert main(["train", "--env", GAME, *TINY[2:], "--out", "runs/r", "--steps", "1", "--overwrite", "--quiet"]) == 0
    assert [row["step"] for row in curve("runs/r")] == [-1, 0]
    assert (
        json.loads(Path("runs/r/run.json").read_text())["config"]["optimizer"]["lr"]
        == from_mapping({"env": GAME}).optimizer.lr
    )


@pytest.mark.slow
def test_a_run_of_an_earlier_version_keeps_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--steps", "1", "--out", "run", "--quiet"]) == 0

    def forget(settings: dict[str, Any]) -> dict[str, Any]:
        assert settings["algorithm"].pop("entropy_failed") == 10.0
        assert settings["algorithm"].pop("kl_unsolved") == 0.1
        return settings

    saved = json.loads(Path("run/run.json").read_text())
    Path("run/run.json").write_text(json.dumps({**saved, "config": forget(saved["config"])}))
    for folder in checkpoint.checkpoints(Path("run")):
        state = torch.load(folder / checkpoint.STATE)
        torch.save({**state, "config": json.dumps(forget(json.loads(state["config"])))}, folder / checkpoint.STATE)
        (folder / MANIFEST).unlink()
        write_manifest(folder)

    assert main(["train", "--out", "run", "--resume", "--steps", "2", "--quiet"]) == 0
    assert read(Path("run/metrics.jsonl"))[-1]["step"] == 1
    algorithm = checkpoint.saved_config(checkpoint.checkpoints(Path("run"))[-1])["algorithm"]
    assert (algorithm["entropy_failed"], algorithm["kl_unsolved"]) == (1.0, 0.0)
    capsys.readouterr()
    assert main(["train", *TINY, "--steps", "3", "--out", "run", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "algorithm.entropy_failed: 1.0 -> 10.0\n" in error
    assert "algorithm.kl_unsolved: 0.0 -> 0.1\n" in error


def test_a_full_disk_is_reported_and_leaves_no_partial_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """Limit the size of files, so that writes fail as on a full disk."""
    code = (
        "import resource, sys\nfrom palestra.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "sys.exit(main(['train', *sys.argv[1:]]))\n"
    )
    command = [*TINY, "--steps", "1", "--out", "run"]
    for options, path in (["--kl-unsolved", "0"], "run/best.pt"), (["--overwrite"], "the checkpoint run/start"):
        done = warm_process.run([sys.executable, "-c", code, *command, *options], capture_output=True)
        assert done.returncode == 3
        assert done.stderr.startswith(f"palestra: store failed: cannot write {path}: ")
        assert done.stderr.count("\n") == 1
    assert main(["train", *command, "--json"]) == 0
    assert [row["step"] for row in curve("run")] == [-1, 0]
    assert "resumed" not in capsys.readouterr().err


LONG = [*TINY, "--episodes", "16", "--steps", "4", "--warm-start", "0", "--max-tokens", "8", "--out", "run"]


@pytest.fixture(scope="module")
def uninterrupted(taught: str, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the curve of an uninterrupted run."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main(["train", *LONG, "--model", taught, "--out", str(out), "--quiet"]) == 0
    rows = curve(str(out))
    assert all(row["signal"] for row in rows if row["step"] >= 0), "a run that learns nothing resumes trivially"
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_resumes_with_the_same_command(
    number: signal.Signals, taught: str, uninterrupted: list[dict[str, Any]]
) -> None:
    command = [sys.executable, "-m", "palestra", "train", *LONG, "--model", taught]
    process = warm_process.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not process.stdout.readline().startswith("step 2/"):
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in errors
    if number == signal.SIGINT:
        assert "run the same command to continue" in errors
        assert Path("run/report.html").exists()
    assert len(curve("run")) < len(uninterrupted)
    assert main([*command[3:], "--quiet"]) == 0
    assert curve("run") == uninterrupted


@pytest.mark.slow
def test_a_terminal_shows_a_live_block_and_a_second_process_is_refused(taught: str) -> None:
    controller, terminal = pty.openpty()
    env = os.environ | {"TERM": "xterm"}
    command = [sys.executable, "-m", "palestra", "train", *LONG, "--model", taught, "--out", "tty"]
    process = warm_process.Popen(command, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    text, refused = "", None
    while True:
        try:
            text += os.read(controller, 4096).decode(errors="replace")
        except OSError:  # the other end of the terminal is closed
            break
        if "evaluated" in text and refused is None:  # the first status block was printed
            refused = main(command[3:])
    os.close(controller)
    assert process.wait(timeout=60) == 0
    assert "step 4/4 ━━━━━━━━━━━━" in text
    assert "\x1b[" in text
    # Long lines are wrapped, and the reason for the end and the next commands follow.
    lines = text.rstrip().splitlines()[-12:]
    (result,) = (number for number, line in enumerate(lines) if line.startswith("tty: success"))
    (final,) = (number for number, line in enumerate(lines) if line.startswith("final success"))
    assert result < final
    assert "Writing model shards" not in text
    assert refused == 2

"""Test `palestra push` against a fake of the hub's HTTP API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.cli import main
from tests.cli.hub import fake_hub

CONFIG = {
    "env": {"name": ["game:GuessTheNumber-v0-easy=2"]},
    "model": {"name": "default:0.1M"},
    "algorithm": {"name": "rebn", "gamma": 0.9},
    "run": {"steps": 4, "seed": 1, "out": "/home/me/private"},
}
ROWS = [
    {"step": -1, "eval_success": 0.25, "eval_success_low": 0.2, "eval_success_high": 0.3},
    {"step": 3, "eval_success": 0.5, "eval_success_low": 0.4, "eval_success_high": 0.6, "final_success": 0.45},
]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "best").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"config": CONFIG, "versions": {"palestra": "0.1.0"}, "command": []}))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for name in ("config.json", "model.safetensors", "manifest.json"):
        (run / "best" / name).write_text(f"contents of {name}")
    return run


def push(run: Path, *, endpoint: str, token: str) -> tuple[int, str, str]:
    """Run the command in a new process, because huggingface_hub reads these variables when it is imported."""
    hub = {"HF_ENDPOINT": endpoint, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-m", "palestra", "push", str(run), "me/guesser", "--private"]
    done = subprocess.run(command, env=os.environ | hub, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_model_and_its_card_are_uploaded(trained: Path) -> None:
    with fake_hub() as hub:
        code, stdout, stderr = push(trained, endpoint=hub.url, token=hub.token)
        assert code == 0, stderr
        assert f"{hub.url}/me/guesser/commit/1" in stdout
        assert hub.repos["me/guesser"]["visibility"] == "private"
        assert set(hub.files) == {"README.md", "config.json", "model.safetensors"}
        assert hub.files["model.safetensors"] == b"contents of model.safetensors"
        card = hub.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "| before training | 0 | 25.0% | 20.0% to 30.0% |" in card
    assert "| best | 4 | 50.0% | 40.0% to 60.0% |" in card
    assert "palestra eval game:GuessTheNumber-v0-easy --model me/guesser" in card
    assert "/home/me" not in card


def test_a_wrong_token_is_a_usage_error_without_traceback(trained: Path) -> None:
    with fake_hub() as hub:
        code, _, stderr = push(trained, endpoint=hub.url, token="wrong")
    assert code == 2
    assert "hf auth login" in stderr
    assert "Traceback" not in stderr


def test_a_dry_run_prints_the_card_and_the_files(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(trained), "me/guesser", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "# me/guesser" in printed
    assert "model.safetensors" in printed
    assert "manifest.json" not in printed


@pytest.mark.parametrize(
    ("name", "which", "message"), [("guesser", "best", "OWNER/NAME"), ("me/x", "last", "no model")]
)
def test_invalid_requests(
    trained: Path, name: str, which: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(trained), name, "--which", which]) == 2
    assert message in capsys.readouterr().err

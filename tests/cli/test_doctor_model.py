"""Test `palestra doctor --model`."""

from __future__ import annotations

import json

import pytest

from palestra.cli import main


def test_settings_for_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "Qwen/Qwen3-8B", "--gpus", "8", "--gpu-memory", "80"]) == 0
    output = capsys.readouterr().out
    assert "8,190,735,360 parameters" in output
    assert "torchrun --nproc-per-node 4 -m palestra train --env ENV --model Qwen/Qwen3-8B --engine vllm" in output
    assert "--engine-gpus 4,5,6,7 --engine-servers 4" in output


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "Qwen/Qwen3-1.7B", "--gpus", "1", "--gpu-memory", "141", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["learners"] == 1
    assert plan["learning_bytes"]["optimizer"] == 8 * 1_720_574_976


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "Qwen/Qwen3-32B", "--gpus", "1", "--gpu-memory", "24"]) == 1
    assert "No settings fit" in capsys.readouterr().out


def test_context_beyond_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "Qwen/Qwen3-8B", "--context", "100000"]) == 2
    assert "--context must be between 1 and 40960" in capsys.readouterr().err

"""Test that benchmarks/hf_engine.py runs the same conversations on both sides. Timings are not checked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import warm_process

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hf_engine.py"


@pytest.mark.slow
def test_both_sides_play_the_same_conversations() -> None:
    options = ["--conversations", "6", "--turns", "2", "--layers", "1", "--hidden", "32", "--vocabulary", "256"]
    command = [sys.executable, str(SCRIPT), *options, "--runners", "native", "transformers", "--json"]
    done = warm_process.run(command, capture_output=True)
    report = json.loads(done.stdout)
    assert done.returncode == (report["ratio"] < 3), done.stderr
    assert report["native"]["tokens"] == report["transformers"]["tokens"] == report["generate"]["tokens"] > 100
    assert report["native"]["computed"] == report["transformers"]["computed"] < report["generate"]["computed"]
    assert report["native"]["reused"] > 0

"""Test that benchmarks/hf_engine.py runs the same conversations on both sides. Timings are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hf_engine.py"


@pytest.mark.slow
def test_both_sides_play_the_same_conversations() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", "--runners", "native", "transformers"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode == (report["ratio"] < 3), done.stderr
    assert report["native"]["tokens"] == report["transformers"]["tokens"] == report["generate"]["tokens"] > 300
    assert report["native"]["computed"] == report["transformers"]["computed"] < report["generate"]["computed"]
    assert report["native"]["reused"] > 0

"""Test that benchmarks/gpu_learner.py runs on a CPU with a tiny model. Timings are not checked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import warm_process

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_learner.py"
OPTIONS = [
    *("--device", "cpu", "--dtype", "float32", "--shapes", "tiny", "--cases", "2x40", "--loss-shares", "0.5"),
    *("--sections", "ragged", "hf", "exact", "--runs", "1", "--exact-length", "40", "--hf-recompute", "0", "--out"),
]


@pytest.mark.slow
def test_every_section_runs(tmp_path: Path) -> None:
    done = warm_process.run([sys.executable, str(SCRIPT), *OPTIONS, str(tmp_path / "out.json")], capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "out.json").read_text())
    packed, padded = report["ragged tiny"]
    assert (packed["layout"], padded["layout"]) == ("packed", "padded")
    assert packed["computed_gb"] > 0
    assert packed["recomputed"] is False
    assert packed["grad_norm"] == pytest.approx(padded["grad_norm"], rel=1e-3)
    assert report["exact"][0]["gradient_error"] < 1e-4
    assert report["hf tiny"][0]["seconds"] > 0

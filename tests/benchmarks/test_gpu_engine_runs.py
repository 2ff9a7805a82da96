"""Test that benchmarks/gpu_engine.py runs on a CPU with a tiny model. Timings are not checked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import warm_process

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_engine.py"
OPTIONS = [
    *("--device", "cpu", "--dtype", "float32", "--shapes", "tiny", "--runner", "paged", "--runs", "1"),
    *("--sections", "decode", "prefill", "soak", "--rows", "3", "--generate-rows", "3", "--prompt", "20"),
    *("--tokens", "4", "--prefill", "3", "30", "--requests", "20", "--out"),
]


@pytest.mark.slow
def test_every_section_uses_the_paged_runner(tmp_path: Path) -> None:
    done = warm_process.run([sys.executable, str(SCRIPT), *OPTIONS, str(tmp_path / "out.json")], capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "out.json").read_text())
    (decode,), (soak,) = report["decode tiny"], report["soak"]
    assert decode["runner"] == soak["runner"] == "paged"
    assert decode["generate"] > 0
    assert soak["max_error"] < 1e-4
    assert soak["leaked_pages"] == 0

"""Test that the search and MCP benchmarks run and their exit codes match their output. Timings are not checked."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[2] / "benchmarks"


def report(script: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / script), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    report_data: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(report_data["missed"])
    return report_data


@pytest.mark.slow
def test_search_runs() -> None:
    report_data = report("search.py", "--passages", "3000", "--no-peers")
    assert report_data["recall"] == 1
    assert min(*report_data["index"].values(), *report_data["queries"].values()) > 0


def test_mcp_runs() -> None:
    report_data = report("mcp_calls.py", "--calls", "40")
    assert report_data["calls"] == 40
    assert report_data["ratio"] > 0


def test_each_bar_can_be_missed() -> None:
    missed = runpy.run_path(str(HERE / "search.py"))["missed_bars"]
    good = {"index": {"wall_s": 600.0, "memory_gb": 4.0}, "queries": {"p50_ms": 10.0}, "recall": 1.0}
    assert missed(good) == []
    assert len(missed({**good, "recall": 0.999})) == 1
    assert len(missed({**good, "index": {"wall_s": 601.0, "memory_gb": 4.1}})) == 2
    assert len(missed({**good, "queries": {"p50_ms": 10.1}})) == 1
    mcp_missed = runpy.run_path(str(HERE / "mcp_calls.py"))["missed_bars"]
    assert mcp_missed({"ratio": 1.3}) == []
    assert len(mcp_missed({"ratio": 1.31})) == 1

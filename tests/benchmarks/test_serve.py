"""Test that the server benchmarks run without peers and that the soak test finds no error."""

from __future__ import annotations

import json
import runpy

import pytest

from tests.benchmarks.test_benchmarks_run import BENCHMARKS, run


@pytest.mark.slow
def test_throughput_without_peers() -> None:
    code, text = run("serve.py", "--alone", "--quick", "--workers", "1", "--json")
    report = json.loads(text)
    assert code == bool(report["missed"])
    assert set(report["servers"]) == {"ours, HTTP", "ours, WebSocket", "ours, one vector", "ours, vectors", "bare ASGI"}
    assert all(figures["steps_per_s"] > 0 and figures["p99_ms"] > 0 for figures in report["servers"].values())


@pytest.mark.slow
def test_soak_executes_every_step_once() -> None:
    code, text = run("serve_soak.py", "--sessions", "50", "--steps", "1000", "--workers", "2", "--json")
    report = json.loads(text)
    assert report["errors"] == []
    assert code == 0
    counts = report["counts"]
    assert counts["workers killed"] == 1
    assert counts["responses lost"] > 0
    assert counts["lost: worker"] > 0


def test_each_bar_can_be_missed() -> None:
    module = runpy.run_path(str(BENCHMARKS / "serve.py"), run_name="serve")

    def job(rate: float, p99: float) -> object:
        result = module["Job"]("", 0, list)
        result.rates, result.p99 = [rate], [p99]
        return result

    good = {
        "ours, HTTP": job(2000, 5),
        "ours, WebSocket": job(4000, 5),
        "ours, one vector": job(20000, 5),
        "ours, vectors": job(20000, 5),
        "bare ASGI": job(4000, 1),
        "AgentGym TextCraft": job(500, 20),
        "OpenEnv echo, WebSocket": job(1000, 10),
        "AgentGym TextCraft, one": job(400, 1),
        "OpenEnv echo, WebSocket, one": job(1000, 1),
    }
    assert [ratio >= least for _, ratio, least in module["bars"](good)] == [True] * 7
    for name, worse in (
        ("ours, HTTP", job(1900, 5)),
        ("ours, WebSocket", job(3900, 5)),
        ("ours, vectors", job(19000, 5)),
        ("ours, one vector", job(19000, 5)),
        ("ours, HTTP", job(2000, 11)),
    ):
        assert not all(ratio >= least for _, ratio, least in module["bars"]({**good, name: worse}))

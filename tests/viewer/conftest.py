"""Fixture for read-only tests: one viewer server for a folder with runs of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewer.sample_runs import everything
from tests.viewer.server import Server


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory.mktemp("viewer") / "runs")


@pytest.fixture(scope="session")
def server(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(runs, tmp_path_factory.mktemp("cache"))
    yield server
    stderr = server.close()
    assert stderr == "", stderr  # neither a warning nor a traceback was printed

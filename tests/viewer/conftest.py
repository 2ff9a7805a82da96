"""One server over a folder with runs of every kind, shared by read-only tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewer.made import everything
from tests.viewer.server import Server


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory.mktemp("viewer") / "runs")


@pytest.fixture(scope="session")
def server(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(runs, tmp_path_factory.mktemp("cache"))
    yield found
    stderr = found.close()
    assert stderr == "", stderr  # no warning, no traceback

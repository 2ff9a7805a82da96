"""Let the tests of ScienceWorld use one Java process on every machine; by default, the number depends on the cores."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_java_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_SCIWORLD_JVMS", "1")

"""Test that the lists of slow tests in slow_tests.txt and conftest.py name existing tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import FIRST, SLOW

HERE = Path(__file__).parent


@pytest.mark.parametrize("entry", sorted(SLOW | FIRST))
def test_entries_exist(entry: str) -> None:
    file, _, function = entry.partition("::")
    assert f"def {function}" in (HERE / file).read_text()

"""Test that the lists of slow tests in slow_tests.txt and conftest.py name existing tests."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import FIRST, SLOW

HERE = Path(__file__).parent


def exists(entry: str) -> bool:
    file, _, function = entry.partition("::")
    return (HERE / file).exists() and f"def {function}" in (HERE / file).read_text()


def test_entries_exist() -> None:
    assert [entry for entry in sorted(SLOW | FIRST) if not exists(entry)] == []

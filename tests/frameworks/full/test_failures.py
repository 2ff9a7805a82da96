"""Test episodes that fail or are interrupted in frameworks that need a result for every episode."""

from __future__ import annotations

import pytest

from tests.frameworks.frameworks import ROOT, run_program


@pytest.mark.parametrize("name", ["openrlhf", "rl2", "roll"])
def test_a_failed_episode_is_played_again(name: str) -> None:
    assert "passed" in run_program(name, ROOT / "tests" / "frameworks" / f"play_{name}.py")

"""Test verifiers environments as Palestra environments."""

from __future__ import annotations

from tests.frameworks.frameworks import ROOT, run_program


def test_an_environment_of_verifiers_is_played() -> None:
    assert "passed" in run_program("verifiers-0.1", ROOT / "tests" / "frameworks" / "play_verifiers.py")

"""Check the invariants of variants that share their code with an id that test_every_env.py checks in full.

All invariants are checked for each variant in this process, with two episodes per player. test_other_processes.py
replays episodes of all variants in other processes.
"""

from __future__ import annotations

import pytest

import palestra
from tests.conformance.variants import VARIANTS, notes_of


@pytest.mark.parametrize("env_id", VARIANTS)
def test_invariants_of_a_variant(env_id: str) -> None:
    report = palestra.check_env(env_id, episodes=2, seconds=1.0, processes=False)
    assert len(report.passed) == 7
    assert report.notes == [*notes_of(env_id), "replays in fresh processes were skipped because of processes=False"]

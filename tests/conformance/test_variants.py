"""Check ids that share their code with an id that test_every_env.py checks in full.

The check is short. test_other_processes.py replays episodes from all of these ids in another process.
"""

from __future__ import annotations

import pytest

from tests.conformance.variants import VARIANTS, check_briefly


@pytest.mark.parametrize("env_id", VARIANTS)
def test_invariants_of_a_variant(env_id: str) -> None:
    check_briefly(env_id)

"""Check the invariants of every registered environment that needs no data set.

Data-backed environments are checked on rows that tests write (tests/envs/tasks). The ids of reasoning-gym and
ScienceWorld, and families with many variants (tests/conformance/variants.py), have shorter checks in other files.
"""

from __future__ import annotations

import pytest

import palestra
from tests.conformance.variants import VARIANTS

READY = [env_id for env_id in palestra.list_envs() if not palestra.get_spec(env_id).needs_data]


@pytest.mark.parametrize("env_id", [i for i in READY if not i.startswith(("rg:", "sciworld:")) and i not in VARIANTS])
def test_invariants(env_id: str) -> None:
    # Answers of code tasks are slow to check, because each one is executed.
    episodes = 3 if env_id.startswith("code:") else 25
    report = palestra.check_env(env_id, episodes=episodes, seconds=0.6)
    assert len(report.passed) == 8
    assert report.notes == []

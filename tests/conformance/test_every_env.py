"""Every registered environment that needs no data keeps the laws.

Data-backed ones are proven on rows that tests write (tests/envs/tasks), reasoning-gym's hundreds of ids in a file of
their own, which spends less on each.
"""

from __future__ import annotations

import pytest

import palestra

READY = [env_id for env_id in palestra.list_envs() if not palestra.get_spec(env_id).needs_data]


@pytest.mark.parametrize("env_id", [env_id for env_id in READY if not env_id.startswith("rg:")])
def test_laws(env_id: str) -> None:
    episodes = 3 if env_id.startswith("code:") else 40  # every answer there is a program to be run
    report = palestra.check_env(env_id, episodes=episodes, seconds=4.0)
    assert len(report.passed) == 8
    assert report.notes == []

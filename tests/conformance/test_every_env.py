"""Every registered environment keeps the laws."""

from __future__ import annotations

import pytest

import palestra


@pytest.mark.parametrize("env_id", palestra.list_envs())
def test_laws(env_id: str) -> None:
    report = palestra.check_env(env_id, seconds=4.0)
    assert len(report.passed) == 8
    assert report.notes == []

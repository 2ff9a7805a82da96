"""Check the invariants of every registered environment that needs no dataset.

Data-backed environments are checked on rows that tests write (tests/envs/tasks). The ids of reasoning-gym and
ScienceWorld, and ids that differ from another id only in parameters (tests/conformance/variants.py), have shorter
checks in other files; `make conformance` checks the latter in full, too. `check_env` replays three environments in
fresh processes; test_other_processes.py replays all of them in one process.
"""

from __future__ import annotations

import pytest

import palestra
from tests.conformance.variants import EVERY, READY, notes_of

WITH_PROCESSES = {"code:Puzzles-v0-random", "game:Sokoban-v0-random", "webshop:Shop-v0"}
# Code tasks execute the answers, and the expert needs 1,000 turns to reach the 2048 tile.
EPISODES = {"code:Puzzles-v0-random": 3, "code:Repair-v0-random": 3, "game:Game2048-v0-extreme-hard": 1}
QUICK = {"logic:Rules-v0-d5-open", "math:Arithmetic-v0-random", "textcraft:Depth1-v0"}


@pytest.mark.parametrize(
    "env_id", [pytest.param(env_id, marks=[] if env_id in QUICK else pytest.mark.slow) for env_id in EVERY]
)
def test_invariants(env_id: str) -> None:
    alone = env_id not in WITH_PROCESSES
    report = palestra.check_env(env_id, episodes=EPISODES.get(env_id, 25), seconds=0.4, processes=not alone)
    assert len(report.passed) == 8 - alone
    skipped = ["replays in fresh processes were skipped because of processes=False"] * alone
    assert report.notes == [*notes_of(env_id), *skipped]


def test_ids_exist() -> None:
    assert {*WITH_PROCESSES, *EPISODES, *QUICK} <= {*READY}


def test_every_class_is_checked_in_full() -> None:
    full, ready = ({palestra.get_spec(env_id).entry_point for env_id in ids} for ids in (EVERY, READY))
    assert full == ready

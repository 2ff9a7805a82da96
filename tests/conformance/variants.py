"""Ids that are checked in full, and their variants, which have shorter checks."""

from __future__ import annotations

import palestra

PEEKS = "the environment sets expert_peeks, so the expert may read hidden state"
# Families and games whose expert reads hidden state, such as the recorded answer.
PEEKING = ("code:", "game:WikiGame", "logic:", "math:", "qa:", "rg:", "sciworld:", "sql:", "textcraft:", "webshop:")

MAIN = {  # family -> ids that tests/conformance/test_every_env.py checks in full
    "babyai": ("babyai:GoTo-v0", "babyai:SynthS5R2-v0"),
    "code": ("code:Algorithms-v0-random", "code:Puzzles-v0-random", "code:Repair-v0-random"),
    "search": ("search:World-v0-3hop", "search:World-v0-mixed"),
    "sql": ("sql:Shop-v0", "sql:Mixed-v0"),
    "webshop": ("webshop:Shop-v0", "webshop:test-html"),
}
VARIANTS = [
    env_id
    for family, main in MAIN.items()
    for env_id in palestra.list_envs(family)
    if env_id not in main and not palestra.get_spec(env_id).needs_data
]
EVERY = [  # ids that tests/conformance/test_every_env.py checks; reasoning-gym and ScienceWorld have their own files
    env_id
    for env_id in palestra.list_envs()
    if not env_id.startswith(("rg:", "sciworld:"))
    and env_id not in VARIANTS
    and not palestra.get_spec(env_id).needs_data
]


def notes_of(env_id: str) -> list[str]:
    """Return the notes that `check_env` is expected to report for an id."""
    return [PEEKS] if env_id.startswith(PEEKING) else []

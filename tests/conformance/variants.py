"""Families with many variants of one environment. Only the ids listed here are checked in full."""

from __future__ import annotations

import palestra

MAIN = {  # family -> ids that tests/conformance/test_every_env.py checks in full
    "babyai": ("babyai:GoTo-v0", "babyai:SynthS5R2-v0"),
    "code": ("code:Puzzles-v0-random", "code:Repair-v0-random"),
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

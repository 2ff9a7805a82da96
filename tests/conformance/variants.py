"""Ids that are checked in full, and ids with other parameters, for which shorter checks suffice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import palestra
from palestra.conformance import Rate, invariants
from palestra.conformance.check import _subject
from palestra.conformance.recording import Recording, Subject
from tests.warm_process import TEST_RUN

# `make conformance` sets this variable, and then every id is checked in full.
COMPLETE = os.environ.get("PALESTRA_CONFORMANCE") == "full"

PEEKS = "the environment sets expert_peeks, so the expert may read hidden state"
# Families and games whose expert reads hidden state, such as the recorded answer.
PEEKING = ("code:", "game:WikiGame", "logic:", "math:", "qa:", "rg:", "sciworld:", "sql:", "textcraft:", "webshop:")

# Ids that are checked in full, for families with several ids per class. In other families, one id per class is checked
# in full: the "random" variant, which samples the other ids' sizes and levels, or else the first id.
MAIN = {
    "babyai": ("babyai:GoTo-v0", "babyai:SynthS5R2-v0"),
    "logic": ("logic:Rules-v0-d3", "logic:Rules-v0-d5-open"),
    "qa": ("qa:World-v0-mixed",),
    "search": ("search:World-v0-mixed",),
    "sql": ("sql:Shop-v0", "sql:Mixed-v0"),
    "textcraft": ("textcraft:Depth1-v0", "textcraft:All-v0"),
    "webshop": ("webshop:Shop-v0", "webshop:test-html"),
}
# The browser environments, reasoning-gym and ScienceWorld have their own files.
READY = [
    env_id
    for env_id in palestra.list_envs()
    if not env_id.startswith(("miniwob:", "rg:", "sciworld:", "web:")) and not palestra.get_spec(env_id).needs_data
]


def _is_main(env_id: str) -> bool:
    family, entry_point = env_id.partition(":")[0], palestra.get_spec(env_id).entry_point
    if family in MAIN:
        return env_id in MAIN[family]
    same_class = [other for other in READY if palestra.get_spec(other).entry_point == entry_point]
    return env_id == next((other for other in same_class if other.endswith("-random")), same_class[0])


EVERY = [env_id for env_id in READY if COMPLETE or _is_main(env_id)]  # checked by test_every_env.py
VARIANTS = [env_id for env_id in READY if not _is_main(env_id)]  # checked by test_variants.py


def sample(ids: Sequence[str], count: int) -> list[str]:
    """Return some of the ids, chosen at random in every run but always the same in CI; all in `make conformance`."""
    rng = Random(0) if "CI" in os.environ else Random(os.environ.get(TEST_RUN))  # the same in all workers
    return list(ids) if COMPLETE else sorted(rng.sample(list(ids), count))


def notes_of(env_id: str) -> list[str]:
    """Return the notes that `check_env` is expected to report for an id."""
    return [PEEKS] if env_id.startswith(PEEKING) else []


def check_briefly(env_id: str, **kwargs: Any) -> tuple[Subject, list[Recording]]:
    """Check the invariants that may depend on the parameters of an id, on one episode per player.

    These are the flags, the rewards, the success of the expert, empty actions, forks, the prompt and the stated rates.
    """
    subject = _subject(env_id, kwargs)
    with subject.make() as env:
        expert = subject.record(env, 1, "expert")
        random = subject.record(env, 2, "random")
    invariants.rate(subject, "expert", Rate(bool(expert.success), 1))
    invariants.flags(subject, [expert, random])
    invariants.solved_return(subject, [expert])
    invariants.empty_answers(subject)
    invariants.forks(subject, [min(expert, random, key=lambda recording: len(recording.actions))])
    invariants.prompt(subject, [random])
    invariants.documented_rates(subject)
    return subject, [expert, random]

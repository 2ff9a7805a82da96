"""Register the `fault:` environments on import. Each one is a guessing game with one kind of failure.

They are not in the catalog because they deliberately violate the rules that environments must follow.
"""

from __future__ import annotations

from typing import Any

from palestra import registry
from palestra.core import Env
from palestra.server.fault_injection.wrapper import FaultyEnv
from palestra.spec import EnvSpec

KINDS = {
    "Slow": ("slow", "Every step takes 0.2 s longer."),
    "Hang": ("hang", "A step never returns."),
    "Raise": ("raises", "A step raises an exception."),
    "Crash": ("crash", "A step terminates its process."),
    "Grow": ("grow", "Every step leaks 8 MB of memory."),
    "WrongSeed": ("wrong_seed", "A reset ignores the seed and starts a different episode."),
}


def make_faulty(*, kind: str, rate: float = 1.0, **kwargs: Any) -> Env:
    """Return a guessing game in which failures of type `kind` occur with probability `rate`."""
    rates: dict[str, Any] = {kind: rate}
    return FaultyEnv(registry.make("game:GuessTheNumber-v0-hard"), **rates, **kwargs)


for _name, (_kind, _summary) in KINDS.items():
    registry.register_spec(
        EnvSpec(
            id=f"fault:{_name}-v0",
            entry_point="palestra.server.fault_injection.envs:make_faulty",
            kwargs={"kind": _kind},
            summary=_summary,
        )
    )

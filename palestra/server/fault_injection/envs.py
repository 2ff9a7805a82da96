"""Registers `fault:` environments when it is imported: guessing games that go wrong, one way each.

They are not among the registered ones otherwise, since they break the laws on purpose.
"""

from __future__ import annotations

from typing import Any

from palestra import registry
from palestra.core import Env
from palestra.server.fault_injection.wrapper import Faulty
from palestra.spec import EnvSpec

KINDS = {
    "Slow": ("slow", "every step takes 0.2 s longer"),
    "Hang": ("hang", "a step that never ends"),
    "Raise": ("raises", "a step that raises"),
    "Crash": ("crash", "a step that ends its process"),
    "Grow": ("grow", "8 MB more with every step"),
    "WrongSeed": ("wrong_seed", "begins another episode than was asked for"),
}


def make_faulty(*, kind: str, rate: float = 1.0, **kwargs: Any) -> Env:
    """A guessing game that goes wrong as `kind` says, in `rate` of its steps; `kwargs` are Faulty's."""
    rates: dict[str, Any] = {kind: rate}
    return Faulty(registry.make("game:GuessTheNumber-v0-hard"), **rates, **kwargs)


for _name, (_kind, _told) in KINDS.items():
    registry.register_spec(
        EnvSpec(
            id=f"fault:{_name}-v0",
            entry_point="palestra.server.fault_injection.envs:make_faulty",
            kwargs={"kind": _kind},
            summary=_told,
        )
    )

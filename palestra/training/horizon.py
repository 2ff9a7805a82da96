"""ScalingInter: the maximum number of turns per episode as a function of the training step.

A schedule is written as `20` (constant), `5,10,15@100` (stages of 100 steps), `5@50,10@200,15` (stages of 50 and 200
steps) or `none`. The last value applies until the end of the run. The horizon depends only on the step, so a resumed
run follows the same schedule as an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from palestra.errors import BadValue


@dataclass(frozen=True, slots=True)
class HorizonSchedule:
    """Horizon schedule in stages. Without stages, only the environment's limit applies."""

    stages: tuple[int, ...] = ()  # maximum number of turns in each stage
    steps: tuple[int, ...] = ()  # number of steps in each stage except the last

    def __post_init__(self) -> None:
        if any(number < 1 for number in (*self.stages, *self.steps)):
            raise BadValue(f"the turns and steps of a horizon must be at least 1, got {self}")
        if any(later < earlier for earlier, later in pairwise(self.stages)):
            raise BadValue(f"a horizon must not decrease from one stage to the next, got {self}; sort its stages")
        if len(self.steps) != max(0, len(self.stages) - 1):
            raise BadValue(f"every stage of a horizon except the last needs a number of steps, got {self}")

    @classmethod
    def parse(cls, text: str | int | None) -> HorizonSchedule:
        if text is None or str(text).strip().lower() in ("", "none"):
            return cls()
        parts = [part.partition("@") for part in str(text).split(",")]
        same_length = len(parts) > 1 and not any(at for _, at, _ in parts[:-1])
        if same_length and not parts[-1][1]:
            raise BadValue(f"a horizon with stages needs the number of steps per stage, for example {text}@100")
        try:
            stages = tuple(int(turns) for turns, _, _ in parts)
            steps = tuple(int(length) for _, at, length in parts if at)
        except ValueError as err:
            raise BadValue(
                f"horizon must be a number (20), stages (5,10,15@100 or 5@50,10@200,15) or none; got {text!r}"
            ) from err
        if same_length:
            return cls(stages, steps * (len(stages) - 1))
        if parts[-1][1] or not all(at for _, at, _ in parts[:-1]):
            raise BadValue(
                f"a horizon needs a number of steps for every stage except the last (5@50,10@200,15) or one number for "
                f"all stages (5,10,15@100); got {text!r}"
            )
        return cls(stages, steps)

    def at(self, step: int) -> int | None:
        """Return the maximum number of turns at `step` (0-based), or None for no limit."""
        if not self.stages:
            return None
        return self.stages[sum(step >= end for end in accumulate(self.steps))]

    def __str__(self) -> str:
        if not self.stages:
            return "none"
        lengths = [f"@{count}" for count in self.steps]
        lengths += [""] * (len(self.stages) - len(lengths))
        return ",".join(f"{turns}{length}" for turns, length in zip(self.stages, lengths, strict=False))

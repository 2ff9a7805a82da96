"""ScienceWorld's 30 task types, their variations, splits, groups and turn budgets.

Five groups are the same as in AgentGym-RL and consist of task types with a common name prefix. The splits are the same
as in ScienceWorld: the first half of a type's variations is for training, the next quarter for development, and the
rest for testing. A turn budget is 1.5 times the task type's longest known solution, rounded to a multiple of ten, and
at least 30. One solution with 736 turns was ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from palestra.errors import BadValue

Split = Literal["train", "dev", "test", "all"]
SPLITS: tuple[str, ...] = get_args(Split)
SIMPLIFICATIONS = (
    "easy",
    "noElectricalAction",
    "openContainers",
    "openDoors",
    "selfWateringFlowerPots",
    "teleportAction",
)


_NOT_IN_AGENTGYM = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})
_EXPLICIT_TITLES = {  # titles of task types that would otherwise have the same title as their group
    "test-conductivity": "TestConductivityOfKnownSubstances",
    "chemistry-mix": "ChemistryMixSubstances",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """One task type."""

    name: str  # ScienceWorld's name
    number: str  # ScienceWorld's number, such as "4-1"
    topic: str
    variations: int
    turns: int  # default turn budget
    expert: float  # measured success rate of ScienceWorld's own solutions

    @property
    def title(self) -> str:
        """Name used in env ids, such as FindPlant."""
        return _EXPLICIT_TITLES.get(self.name) or "".join(part.capitalize() for part in self.name.split("-"))

    @property
    def electrical(self) -> bool:
        return self.topic == "Electricity"

    def split(self, name: str) -> range:
        """Return the variations in a split."""
        if name not in SPLITS:
            raise BadValue(f"`data_split` must be one of {', '.join(SPLITS)}; got {name!r}")
        quarter = self.variations // 4
        # Split boundaries, in quarters of the number of variations. The remainder belongs to "test".
        parts = {"train": (0, 2), "dev": (2, 3), "test": (3, 5), "all": (0, 8)}
        first, last = parts[name]
        return range(self.variations)[first * quarter : last * quarter]


def _types() -> tuple[TaskType, ...]:
    # Columns: number, topic, variations, turn budget, successful solutions / solutions tried, ScienceWorld's name.
    rows = """
    1-1  Matter          30  270  30/30  boil
    1-2  Matter          30  180  30/30  melt
    1-3  Matter          30  210  30/30  freeze
    1-4  Matter          30  190  30/30  change-the-state-of-matter-of
    2-1  Measurement    540   40  10/10  use-thermometer
    2-2  Measurement    436  110  10/10  measure-melting-point-known-substance
    2-3  Measurement    300  150  46/47  measure-melting-point-unknown-substance
    3-1  Electricity     20   30  10/10  power-component
    3-2  Electricity     20   50  10/10  power-component-renewable-vs-nonrenewable-energy
    3-3  Electricity    900   70  10/10  test-conductivity
    3-4  Electricity    600   50  10/10  test-conductivity-of-unknown-substances
    4-1  Classification 300   30  10/10  find-living-thing
    4-2  Classification 300   30  10/10  find-non-living-thing
    4-3  Classification 300   30  10/10  find-plant
    4-4  Classification 300   30  10/10  find-animal
    5-1  Biology        126   80  10/10  grow-plant
    5-2  Biology        126  150  23/24  grow-fruit
    6-1  Chemistry       32   90  10/10  chemistry-mix
    6-2  Chemistry       36   50  10/10  chemistry-mix-paint-secondary-color
    6-3  Chemistry       36   60  10/10  chemistry-mix-paint-tertiary-color
    7-1  Biology        125   30  10/10  lifespan-longest-lived
    7-2  Biology        125   30  10/10  lifespan-shortest-lived
    7-3  Biology        125   30  10/10  lifespan-longest-lived-then-shortest-lived
    8-1  Biology         14   60    9/9  identify-life-stages-1
    8-2  Biology         10   30    9/9  identify-life-stages-2
    9-1  Forces         168  250    9/9  inclined-plane-determine-angle
    9-2  Forces        1386  160  34/34  inclined-plane-friction-named-surfaces
    9-3  Forces         162  340    9/9  inclined-plane-friction-unnamed-surfaces
    10-1 Biology        120  240  26/28  mendelian-genetics-known-plant
    10-2 Biology        480  230  18/20  mendelian-genetics-unknown-plant
    """
    types = []
    for row in rows.strip().splitlines():
        number, topic, variations, turns, measured, name = row.split()
        solved, tried = map(int, measured.split("/"))
        rate = min(solved / tried, 0.99)  # only a sample of the variations was tried, so the true rate may be below 1
        types.append(
            TaskType(name=name, number=number, topic=topic, variations=int(variations), turns=int(turns), expert=rate)
        )
    return tuple(types)


TYPES = {task.name: task for task in _types()}
GROUPS: dict[str, tuple[str, ...]] = {
    title: tuple(name for name in TYPES if name.startswith(prefix))
    for title, prefix in (
        ("Measure", "measure-"),
        ("TestConductivity", "test-conductivity"),
        ("Find", "find-"),
        ("ChemistryMix", "chemistry-mix"),
        ("Lifespan", "lifespan-"),
        ("All", ""),
    )
}


@cache
def agentgym_variations() -> tuple[tuple[str, int], ...]:
    """Return all pairs (task type, variation) in AgentGym's order, in which a position is AgentGym's task number."""
    types = [task for task in TYPES.values() if task.number not in _NOT_IN_AGENTGYM]
    return tuple((task.name, variation) for task in types for variation in range(task.variations))


def types_of(names: str | tuple[str, ...]) -> tuple[TaskType, ...]:
    """Return the task types with the given names, numbers, titles or groups."""
    by_number = {task.number: task.name for task in TYPES.values()}
    by_title = {task.title: task.name for task in TYPES.values()}
    chosen: list[str] = []
    for name in (names,) if isinstance(names, str) else names:
        if name in GROUPS:
            chosen += GROUPS[name]
            continue
        resolved = by_number.get(name, by_title.get(name, name))
        if resolved not in TYPES:
            from difflib import get_close_matches

            matches = get_close_matches(str(name), [*TYPES, *GROUPS, *by_title], n=3)
            hint = f" Did you mean {', '.join(matches)}?" if matches else f" Groups are {', '.join(GROUPS)}."
            raise BadValue(f"ScienceWorld has no task {name!r}.{hint}")
        chosen.append(resolved)
    if not chosen:
        raise BadValue("`tasks` must name at least one task type or group")
    return tuple(TYPES[name] for name in dict.fromkeys(chosen))


def simplifications_of(simplifications: str | tuple[str, ...], types: tuple[TaskType, ...]) -> str:
    """Validate simplifications and return them in ScienceWorld's format."""
    names = [
        name.strip() for name in (simplifications.split(",") if isinstance(simplifications, str) else simplifications)
    ]
    names = [name for name in names if name]
    for name in names:
        if name not in SIMPLIFICATIONS:
            from difflib import get_close_matches

            matches = get_close_matches(name, SIMPLIFICATIONS, n=1)
            hint = f" Did you mean {matches[0]}?" if matches else ""
            raise BadValue(f"unknown simplification {name!r}.{hint} Accepted values: {', '.join(SIMPLIFICATIONS)}.")
    if "easy" in names and len(names) > 1:
        raise BadValue('the simplification "easy" already includes other simplifications; leave out the others')
    wired = [task.name for task in types if task.electrical]
    if "noElectricalAction" in names and wired:
        raise BadValue(f"{wired[0]} needs electrical actions; leave out noElectricalAction")
    return ",".join(sorted(set(names)))

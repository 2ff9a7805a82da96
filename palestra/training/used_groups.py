"""Record which groups of tasks an asynchronous run has used, so that a resumed run plays each remaining group once.

A step trains on the groups that are complete, which may include later steps' groups and exclude earlier steps' groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from palestra.training.distributed import DistributedContext

GroupKey = tuple[int, int]  # step and number of the group


class UsedGroups:
    """The groups that one process has trained on or discarded."""

    def __init__(self, groups: Collection[int], *, step: int = 0) -> None:
        self._groups = sorted(groups)
        self.first = step  # all groups of earlier steps are used
        self._later: set[GroupKey] = set()

    def __contains__(self, key: GroupKey) -> bool:
        return key[0] < self.first or key in self._later

    def add(self, key: GroupKey) -> None:
        """Count a group as used."""
        self._later.add(key)
        while all((self.first, group) in self._later for group in self._groups):
            self._later -= {(self.first, group) for group in self._groups}
            self.first += 1

    def state(self, distributed: DistributedContext) -> dict[str, Any]:
        """Return the groups that all processes have used, in a form that does not depend on the number of processes."""
        parts = distributed.gather((self.first, sorted(self._later), self._groups))
        step = max(first for first, _, _ in parts)
        unused = [
            [number, group]
            for first, later, groups in parts
            for number in range(first, step)
            for group in groups
            if (number, group) not in later
        ]
        used = [list(key) for _, later, _ in parts for key in later if key[0] >= step]
        return {"step": step, "unused": unused, "used": used}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore this process's groups from a state."""
        unused, used = _keys(state["unused"], self._groups), _keys(state["used"], self._groups)
        self.first = min([state["step"], *(step for step, _ in unused)])
        self._later = set(used)
        for step in range(self.first, state["step"]):
            self._later |= {(step, group) for group in self._groups if (step, group) not in unused}


def _keys(pairs: Sequence[Sequence[int]], groups: Sequence[int]) -> set[GroupKey]:
    return {(step, group) for step, group in pairs if group in groups}

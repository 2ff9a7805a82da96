"""Which groups of episodes a step learns from, where they are over in any order and none may become too old."""

from __future__ import annotations

from palestra.rollout.types import Trajectory

Group = tuple[int, int]  # the step whose tasks it is of, its number among them


class WaitingRoom:
    """Groups that were begun and not learned from yet.

    A step takes `wanted` of them, the first begun that are whole. A group that was begun with the weights' version b is
    taken at version b + `staleness` at the latest: that is kept by waiting, and possible since no more than
    `staleness` + 1 steps can take are in the room.
    """

    def __init__(self, *, wanted: int, group_size: int, others: int, staleness: int) -> None:
        self._wanted = wanted
        self._group_size = group_size
        self._staleness = staleness
        self._size = wanted + min(others, staleness * wanted)
        self._inside = 0  # those being learned from are, too
        self._open: dict[Group, int] = {}  # in the order they were begun, with the weights' version then
        self._over: dict[Group, list[Trajectory]] = {}  # their episodes so far
        self._whole: list[Group] = []

    @property
    def full(self) -> bool:
        return self._inside >= self._size

    def knows(self, group: Group) -> bool:
        return group in self._over

    def begin(self, group: Group, version: int) -> None:
        self._inside += 1
        self._open[group] = version
        self._over[group] = []

    def put(self, group: Group, trajectory: Trajectory) -> None:
        """An episode is over."""
        self._over[group].append(trajectory)
        if len(self._over[group]) == self._group_size:
            self._whole.append(group)
            del self._open[group]

    def ready(self, version: int) -> bool:
        """Can a step be taken with weights of `version`, so that those after it can take all others in time?

        The next steps take `wanted` each: so the i-th that is still open, from 0, must have i // wanted steps left
        after this one.
        """
        if len(self._whole) < self._wanted:
            return False
        last = version - self._staleness
        return all(begun - last > i // self._wanted for i, begun in enumerate(self._open.values()))

    def take(self) -> list[Trajectory]:
        """A step's episodes; they leave the room when it is `left`."""
        self._whole.sort()
        taken, self._whole = self._whole[: self._wanted], self._whole[self._wanted :]
        return [t for group in taken for t in sorted(self._over.pop(group), key=lambda t: t.member)]

    def left(self) -> None:
        """What was taken last has been learned from."""
        self._inside -= self._wanted

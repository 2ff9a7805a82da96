"""Queue of episode groups for asynchronous training that bounds the staleness of every sample."""

from __future__ import annotations

from math import ceil

from palestra.rollout.types import Trajectory

WAIT = 0.1  # part of a step's time that the trainer may wait for episodes
GROWTH = 1.25  # factor by which the number of groups changes per step

GroupKey = tuple[int, int]  # the task's step, and the group's index within that step


class StalenessBuffer:
    """Groups that were started and not yet trained on.

    A training step takes the `groups_per_step` oldest complete groups. A group that started with weight version v
    is taken at version v + `staleness` at the latest: `ready` returns False until such groups are complete, and the
    buffer never admits more groups than `staleness` + 1 steps can take.

    Besides the groups of the current step, the buffer admits those of one further step, so that most samples are one
    step old. If the trainer nevertheless waits for episodes, `adapt` raises this number up to `extra_groups`.

    The first step takes the groups that started first. All of them start at the same time, so those that are complete
    first have the shortest episodes. Later, groups start when others end.
    """

    def __init__(self, *, groups_per_step: int, group_size: int, extra_groups: int, staleness: int) -> None:
        self._groups_per_step = groups_per_step
        self._group_size = group_size
        self._staleness = staleness
        self._max_extra = min(extra_groups, staleness * groups_per_step)
        self._extra = min(self._max_extra, groups_per_step)  # groups besides those of the current step
        self._size = 0  # number of groups, including those in the current training step
        self._incomplete: dict[GroupKey, int] = {}  # weight version when each group started, oldest first
        self._episodes: dict[GroupKey, list[Trajectory]] = {}
        self._complete: list[GroupKey] = []
        self._taken = False  # whether a step has taken groups

    @property
    def full(self) -> bool:
        return self._size >= self._groups_per_step + self._extra

    def adapt(self, *, waiting: float, learning: float) -> None:
        """Admit more groups if the last step waited for episodes longer than `WAIT` of its time, else fewer."""
        if waiting > WAIT * (waiting + learning):
            self._extra = min(self._max_extra, ceil(GROWTH * self._extra))
        else:
            self._extra = max(min(self._max_extra, self._groups_per_step), int(self._extra / GROWTH))

    def contains(self, group: GroupKey) -> bool:
        return group in self._episodes

    def start(self, group: GroupKey, version: int) -> None:
        """Add a group whose first episode starts with weight version `version`."""
        self._size += 1
        self._incomplete[group] = version
        self._episodes[group] = []

    def put(self, group: GroupKey, trajectory: Trajectory) -> None:
        """Add a finished episode."""
        self._episodes[group].append(trajectory)
        if len(self._episodes[group]) == self._group_size:
            self._complete.append(group)
            del self._incomplete[group]

    def complete(self, group: GroupKey) -> list[Trajectory] | None:
        """Return the episodes of a group, or None if the group is not complete."""
        return self._episodes[group] if group in self._complete else None

    def discard(self, group: GroupKey) -> None:
        """Remove a complete group without training on it, and free its capacity."""
        self._complete.remove(group)
        del self._episodes[group]
        self._size -= 1

    def ready(self, version: int) -> bool:
        """Return whether a step can start at `version` without making any remaining group too stale.

        Each later step takes `groups_per_step` groups, so the i-th incomplete group (counted from 0) must have more
        than i // groups_per_step steps left.
        """
        if len(self._complete) < self._groups_per_step:
            return False
        if not self._taken and self._incomplete:
            last = sorted(self._complete)[self._groups_per_step - 1]
            if min(self._incomplete) < last:
                return False
        oldest = version - self._staleness
        return all(start - oldest > i // self._groups_per_step for i, start in enumerate(self._incomplete.values()))

    def take(self) -> list[Trajectory]:
        """Return the episodes for the next step. Their groups occupy the buffer until `release` is called."""
        self._taken = True
        self._complete.sort()
        count = self._groups_per_step
        taken, self._complete = self._complete[:count], self._complete[count:]
        return [t for group in taken for t in sorted(self._episodes.pop(group), key=lambda t: t.member)]

    def release(self) -> None:
        """Free the capacity used by the groups taken last, after training on them."""
        self._size -= self._groups_per_step

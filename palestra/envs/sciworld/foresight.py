"""The seeds an env was reset with -> the one it will most likely be reset with next."""

from __future__ import annotations

from palestra.seeding import nth_seed


class Foresight:
    """Knows the three lines of seeds there are: without given seeds an episode follows from the last one; evaluations
    count up by one; vectors of envs number the episodes of a root."""

    def __init__(self) -> None:
        self._root = 0
        self._last: int | None = None
        self._episodes = 0  # of the root's line
        self._next = 0

    def note(self, seed: int, *, given: bool) -> None:
        """An episode began."""
        follows = nth_seed(self._root, self._episodes) == seed if self._last is not None else False
        if not given:
            self._next = nth_seed(seed, 0)
        elif follows:
            self._episodes += 1
            self._next = nth_seed(self._root, self._episodes)
        else:
            counts = self._last is not None and seed == self._last + 1
            self._root, self._episodes = seed, 1
            self._next = seed + 1 if counts else nth_seed(seed, 1)
        self._last = seed

    def next_seed(self) -> int:
        return self._next

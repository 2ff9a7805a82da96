"""Which tokens have their keys and values where: the slots of conversations, and how a prompt finds the best one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

BLOCK = 32  # tokens; prompts that share less than this are not looked for


class Slot:
    """The place of one conversation in the cache."""

    __slots__ = ("busy", "cached", "ids", "key", "marks", "offset", "size")

    def __init__(self, ids: list[int], key: Hashable | None, offset: int, size: int) -> None:
        self.ids = ids  # what the conversation holds; a running request appends to the same list
        self.cached = 0  # how many of them have their keys and values here
        self.key = key
        self.offset = offset  # where the block begins
        self.size = size  # how many tokens it has room for
        self.busy = True  # a request runs in it
        self.marks: list[int] = []  # under which marks other prompts find it


class Slots:
    """All slots: by conversation, by the beginning of the prompt, and by how long they have been idle."""

    def __init__(self) -> None:
        self._idle: dict[Slot, None] = {}  # the longest idle first
        self._by_key: dict[Hashable, Slot] = {}
        self._by_mark: dict[int, Slot] = {}

    def __len__(self) -> int:
        """How many are idle."""
        return len(self._idle)

    def idle(self) -> list[Slot]:
        return list(self._idle)

    def of(self, key: Hashable | None) -> Slot | None:
        """The slot of a conversation, busy or idle."""
        return None if key is None else self._by_key.get(key)

    def add(self, slot: Slot, marks: list[int]) -> None:
        """A new slot, busy; its conversation's older one, if it has one, is no longer found by the key."""
        if slot.key is not None:
            self._by_key[slot.key] = slot
        slot.marks = marks
        self._by_mark.update(dict.fromkeys(marks, slot))

    def wake(self, slot: Slot) -> None:
        """An idle slot gets a request."""
        del self._idle[slot]
        slot.busy = True

    def rest(self, slot: Slot) -> bool:
        """Its request is over. False: nobody can come back to the slot, so it is removed; give its block back."""
        slot.busy = False
        if slot.key is None or self._by_key.get(slot.key) is not slot:
            self.remove(slot)
            return False
        self._idle[slot] = None
        return True

    def remove(self, slot: Slot) -> None:
        self._idle.pop(slot, None)
        if slot.key is not None and self._by_key.get(slot.key) is slot:
            del self._by_key[slot.key]
        for mark in slot.marks:
            if self._by_mark.get(mark) is slot:
                del self._by_mark[mark]

    def forget(self, key: Hashable) -> Slot | None:
        """The conversation is over: its idle slot, removed; a busy one goes when its request does."""
        slot = self._by_key.pop(key, None)
        if slot is None or slot.busy:
            return None
        self.remove(slot)
        return slot

    def oldest(self, spared: Slot | None = None) -> Slot | None:
        """The slot that has been idle the longest."""
        return next((slot for slot in self._idle if slot is not spared), None)

    def like(self, marks: Sequence[int]) -> Slot | None:
        """A slot whose prompt began like the one with these marks, for as long as any known one does."""
        for mark in reversed(marks):
            slot = self._by_mark.get(mark)
            if slot is not None:
                return slot
        return None


def marks_of(ids: Sequence[int]) -> list[int]:
    """A number for each beginning of the ids that is a multiple of BLOCK long; equal beginnings have equal numbers."""
    marks: list[int] = []
    mark = 0
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        mark = hash((mark, *ids[end - BLOCK : end]))
        marks.append(mark)
    return marks


def common(a: Sequence[int], b: Sequence[int], most: int) -> int:
    """How many ids the two have in common from the start, `most` at most."""
    most = min(most, len(a), len(b))
    if a[:most] == b[:most]:
        return most
    low, high = 0, most  # a and b agree up to `low` and differ before `high`
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low

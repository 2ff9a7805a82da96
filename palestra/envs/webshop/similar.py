"""Two short texts -> how alike their sets of words are, 0 to 100: the token set ratio that WebShop's reward is defined
by.

The words of both are parted into those they share and those only one has. If one has no words of its own, they are the
same (100); otherwise the best of three comparisons counts, each measured by insertions and deletions alone. This is
what the packages thefuzz (0.20 and later) and rapidfuzz compute; the tests hold values of theirs.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST = 2_000  # characters of a text that are compared, so that a wall of text stays cheap
_OTHER = re.compile(r"[^a-z0-9]")


@lru_cache(maxsize=65_536)
def token_set_ratio(one: str, other: str) -> int:
    left, right = _words(one), _words(other)
    if not left or not right:
        return 0
    shared = " ".join(sorted(left & right))
    own_left, own_right = " ".join(sorted(left - right)), " ".join(sorted(right - left))
    if shared and not (own_left and own_right):
        return 100
    gap = 1 if shared else 0  # the space between what is shared and the rest
    long_left = len(shared) + gap + len(own_left)
    long_right = len(shared) + gap + len(own_right)
    edits = len(own_left) + len(own_right) - 2 * _common(own_left, own_right)
    best = _ratio(edits, long_left + long_right)  # shared + own against shared + own: only the own words differ
    if shared:
        best = max(best, _ratio(gap + len(own_left), len(shared) + long_left))
        best = max(best, _ratio(gap + len(own_right), len(shared) + long_right))
    return round(best)


def _words(text: str) -> set[str]:
    """What thefuzz compares: only ASCII is kept, all but letters and digits part words."""
    bare = text[:LONGEST].encode("ascii", "ignore").decode().lower()
    return set(_OTHER.sub(" ", bare).split())


def _ratio(edits: int, length: int) -> float:
    return 100 * (1 - edits / length) if length else 100.0


def _common(one: str, other: str) -> int:
    """Length of the longest common subsequence, a row of bits at a time (Hyyrö 2004)."""
    if not one or not other:
        return 0
    masks: dict[str, int] = {}
    for place, letter in enumerate(one):
        masks[letter] = masks.get(letter, 0) | 1 << place
    full = (1 << len(one)) - 1
    row = full
    for letter in other:
        matches = row & masks.get(letter, 0)
        row = (row + matches | row - matches) & full
    return len(one) - row.bit_count()

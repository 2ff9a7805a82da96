"""Parse integers, in digits or in words."""

from __future__ import annotations

import re

MAX_WORDS = 40  # longer texts are not parsed as number words

_INT = re.compile(r"[+-]?[0-9]{1,9}")
_SMALL = {str(number): number for number in range(100)}  # a lookup is faster than int()
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_ONES += "seventeen eighteen nineteen"
_UNITS = {word: number for number, word in enumerate(_ONES.split())}
_TENS_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = {word: 10 * tens for tens, word in enumerate(_TENS_WORDS.split(), 2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_FIRST_WORDS = frozenset([*_UNITS, *_TENS, "a", "an", "minus", "negative"])


def read_int(text: str) -> int | None:
    """Parse an integer with at most nine ASCII digits; return None for other text."""
    number = _SMALL.get(text)
    if number is not None:
        return number
    text = text.strip()
    return int(text) if _INT.fullmatch(text) else None


def read_ints(text: str, count: int) -> list[int] | None:
    """Parse exactly `count` integers separated by spaces or commas, optionally in brackets, else return None."""
    fields = text.strip(" \t\n[]()").replace(",", " ").split()
    if len(fields) != count:
        return None
    numbers = [read_int(word) for word in fields]
    return None if None in numbers else numbers  # type: ignore[return-value]


def read_number_words(text: str) -> int | None:
    """Parse an integer in words, such as "twenty-one" or "two thousand and five"; return None for other text."""
    words = text.casefold().replace("-", " ").split() if len(text) < 200 else []
    if not words or len(words) > MAX_WORDS or words[0] not in _FIRST_WORDS:
        return None
    negative = words[0] in ("minus", "negative")
    if negative:
        del words[0]
    if words[:1] in (["a"], ["an"]) and words[1:2] and (words[1] == "hundred" or words[1] in _SCALES):
        words[0] = "one"
    total = _sum_of(words)
    return -total if negative and total is not None else total


def _sum_of(words: list[str]) -> int | None:
    """Add up number words; return None if they do not form a number."""
    total, group = 0, 0  # the sum of the finished groups, and the current group of up to three digits
    scale = 10**15  # the scale of the last finished group
    room = 1000  # words that can still be added to the group must be below this value
    previous = ""
    for index, word in enumerate(words):
        if word == "and" and previous in ("hundred", *_SCALES) and index < len(words) - 1:
            continue
        if word in _SCALES:
            if not group or _SCALES[word] >= scale:
                return None
            scale = _SCALES[word]
            total, group, room = total + group * scale, 0, 1000
        elif word == "hundred":
            if not 0 < group < 100 or room == 100:
                return None
            group, room = group * 100, 100
        else:
            value = _UNITS.get(word, _TENS.get(word))
            if value is None or value >= room or (value == 0 and len(words) > 1):
                return None
            group += value
            room = 10 if value >= 20 else 1
        previous = word
    return total + group if previous else None

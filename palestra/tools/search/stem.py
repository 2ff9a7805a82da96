"""English words -> stems, by Porter's algorithm (M. F. Porter, An algorithm for suffix stripping, 1980)."""

from __future__ import annotations

from itertools import pairwise

_VOWELS = frozenset("aeiou")
# Steps 2 to 4: the first suffix that fits is tried, and nothing after it. Longer ones stand before those they end in.
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters, and those with other letters, stay."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    word = _plurals(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = f"{word[:-1]}i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    return _tidied(_cut(word))


def _plurals(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return _mended(rest) if _has_vowel(rest) else word
    return word


def _mended(word: str) -> str:
    """Give back what went with -ed or -ing: an e, or one of two letters."""
    if word.endswith(("at", "bl", "iz")):
        return f"{word}e"
    if _double(word) and word[-1] not in "lsz":
        return word[:-1]
    return f"{word}e" if _measure(word) == 1 and _ends_short(word) else word


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, other in rules:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return rest + other if _measure(rest) > 0 else word
    return word


def _cut(word: str) -> str:
    suffix = max((suffix for suffix in _STEP_4 if word.endswith(suffix)), key=len, default="")
    rest = word.removesuffix(suffix)
    if not suffix or _measure(rest) < 2 or (suffix == "ion" and not rest.endswith(("s", "t"))):
        return word
    return rest


def _tidied(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _consonant(word: str, index: int) -> bool:
    if word[index] in _VOWELS:
        return False
    return word[index] != "y" or index == 0 or not _consonant(word, index - 1)


def _measure(word: str) -> int:
    """How often a consonant follows a vowel: the m of Porter's [C](VC){m}[V]."""
    kinds = [_consonant(word, index) for index in range(len(word))]
    return sum(not before and after for before, after in pairwise(kinds))


def _has_vowel(word: str) -> bool:
    return not all(_consonant(word, index) for index in range(len(word)))


def _double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _consonant(word, len(word) - 1)


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last of them not w, x or y."""
    last = len(word) - 1
    return (
        last > 1
        and word[last] not in "wxy"
        and _consonant(word, last)
        and not _consonant(word, last - 1)
        and _consonant(word, last - 2)
    )

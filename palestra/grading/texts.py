"""Classify the text of an answer as words or a formula, and compare rounded decimals."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal

MIN_DIGITS = 6  # a number with this many decimals and significant digits equals every value that rounds to it

_DECIMAL = re.compile(r"-?\d*\.\d+")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_CONTEXT = Context(prec=80)


def are_words(gold: str, answer: str) -> bool:
    """Return whether both texts contain only letters and one contains a word, such as "cat", that is not a product."""
    runs = [run for text in (gold, answer) for run in _LETTERS.findall(re.sub(r"\\[A-Za-z]+", "", text))]
    plain = all(re.fullmatch(r"[A-Za-z\s]+", text) for text in (gold, answer))
    return plain and any(len(run) > 2 or set(run.lower()) & set("oieul") for run in runs)


def normalize_words(text: str) -> str:
    """Fold case, strip punctuation at the ends and collapse whitespace."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).replace("$", " ")
    return " ".join(bare.casefold().split()).strip(" .,;:!?\"'()[]{}")


def is_wordy(text: str) -> bool:
    """Return whether the text contains a word and no formula; its case is then ignored."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    return "\\" not in bare and _LETTERS.search(bare) is not None


def is_mathematical(text: str) -> bool:
    """Return whether a computer algebra system could parse the text."""
    bare = re.sub(r"\\(?:text|operatorname)\s*\{[^{}]*\}", "", text)
    if re.search(r"(?<![A-Za-z\\])[A-Za-z]{4,}", re.sub(r"\\[A-Za-z]+|arc(?:sin|cos|tan)|sqrt", " ", bare)):
        return False
    return bool(re.search(r"\\[A-Za-z]+|\d|[-+*/^=]|[A-Za-z]", bare))


def rounds_to(gold: str, gold_value: Decimal, answer: str, answer_value: Decimal) -> bool:
    """Return whether the gold answer rounds to the answer, or the answer to the gold answer, with enough digits.

    If both are decimal numbers, the answer may be the rounded gold answer, but not the reverse.
    """
    gold_places, answer_places = _places(gold), _places(answer)
    if gold_places is not None and answer_places is not None and answer_places >= gold_places:
        return False
    if answer_places is not None:
        return _rounds(gold_value, answer_value, answer_places)
    return gold_places is not None and _rounds(answer_value, gold_value, gold_places)


def _places(text: str) -> int | None:
    """Return the number of digits after the decimal point, or None if the text is not a plain decimal number."""
    return len(text.partition(".")[2]) if _DECIMAL.fullmatch(text.strip()) else None


def _rounds(value: Decimal, shown: Decimal, places: int) -> bool:
    """Return whether `shown` is `value` rounded to `places` decimals, with enough significant digits."""
    if places < MIN_DIGITS or not shown or shown.adjusted() + 1 + places < MIN_DIGITS:
        return False
    step = Decimal(1).scaleb(-places)
    try:
        target = shown.quantize(step, context=_CONTEXT)
        return any(value.quantize(step, mode, _CONTEXT) == target for mode in (ROUND_HALF_UP, ROUND_HALF_DOWN))
    except ArithmeticError:
        return False

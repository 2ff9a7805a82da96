"""What a leaf looks like as text: words or a formula, and how many digits a decimal shows."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal

ENOUGH_DIGITS = 6  # decimals, and significant digits, from which a decimal may stand for what it is the rounding of

_DECIMAL = re.compile(r"-?\d*\.\d+")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_CONTEXT = Context(prec=80)


def are_words(gold: str, answer: str) -> bool:
    """Are both nothing but letters, and at least one a word? Then "cat" is not "act"."""
    runs = [run for text in (gold, answer) for run in _LETTERS.findall(re.sub(r"\\[A-Za-z]+", "", text))]
    plain = all(re.fullmatch(r"[A-Za-z\s]+", text) for text in (gold, answer))
    return plain and any(len(run) > 2 or set(run.lower()) & set("oieul") for run in runs)


def words(text: str) -> str:
    """For comparing as words: no case, no punctuation at the ends, single blanks."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).replace("$", " ")
    return " ".join(bare.casefold().split()).strip(" .,;:!?\"'()[]{}")


def is_wordy(text: str) -> bool:
    """Is there a word in it, and no formula? The case of variables counts, that of words does not."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    return "\\" not in bare and _LETTERS.search(bare) is not None


def is_mathematical(text: str) -> bool:
    """Could a computer algebra system read it? Words are compared as words alone."""
    bare = re.sub(r"\\(?:text|operatorname)\s*\{[^{}]*\}", "", text)
    if re.search(r"(?<![A-Za-z\\])[A-Za-z]{4,}", re.sub(r"\\[A-Za-z]+|arc(?:sin|cos|tan)|sqrt", " ", bare)):
        return False
    return bool(re.search(r"\\[A-Za-z]+|\d|[-+*/^=]|[A-Za-z]", bare))


def rounds_to(gold: str, gold_value: Decimal, answer: str, answer_value: Decimal) -> bool:
    """Is one of them a decimal with digits enough that is the correct rounding of the other?

    Of two decimals the gold may be the more exact one, not the answer: it would have to be exact to show more.
    """
    gold_places, answer_places = _places(gold), _places(answer)
    if gold_places is not None and answer_places is not None and answer_places >= gold_places:
        return False
    if answer_places is not None:
        return _rounds(gold_value, answer_value, answer_places)
    return gold_places is not None and _rounds(answer_value, gold_value, gold_places)


def _places(text: str) -> int | None:
    """How many decimals a plain decimal shows; None where it is none."""
    return len(text.partition(".")[2]) if _DECIMAL.fullmatch(text.strip()) else None


def _rounds(value: Decimal, shown: Decimal, places: int) -> bool:
    """Is `shown` what `value` is at that many decimals, and are they enough, leading zeros aside?"""
    if places < ENOUGH_DIGITS or not shown or shown.adjusted() + 1 + places < ENOUGH_DIGITS:
        return False
    step = Decimal(1).scaleb(-places)
    try:
        target = shown.quantize(step, context=_CONTEXT)
        return any(value.quantize(step, way, _CONTEXT) == target for way in (ROUND_HALF_UP, ROUND_HALF_DOWN))
    except ArithmeticError:
        return False

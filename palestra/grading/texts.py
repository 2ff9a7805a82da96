"""Properties of an answer's text: whether it is words or a formula, and how a decimal is rounded."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal

MIN_DIGITS = 6  # decimals and significant digits from which a decimal equals every value that rounds to it

_DECIMAL = re.compile(r"-?\d*\.\d+")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_CONTEXT = Context(prec=80)


def are_words(gold: str, answer: str) -> bool:
    """Return whether both are letters only and at least one is a word, so that "cat" is not a product of variables."""
    runs = [run for text in (gold, answer) for run in _LETTERS.findall(re.sub(r"\\[A-Za-z]+", "", text))]
    plain = all(re.fullmatch(r"[A-Za-z\s]+", text) for text in (gold, answer))
    return plain and any(len(run) > 2 or set(run.lower()) & set("oieul") for run in runs)


def normalize_words(text: str) -> str:
    """Fold case, strip punctuation at the ends and collapse whitespace."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).replace("$", " ")
    return " ".join(bare.casefold().split()).strip(" .,;:!?\"'()[]{}")


def is_wordy(text: str) -> bool:
    """Return whether it contains a word and no formula; case matters for variables but not for words."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    return "\\" not in bare and _LETTERS.search(bare) is not None


def is_mathematical(text: str) -> bool:
    """Return whether a computer algebra system could parse it."""
    bare = re.sub(r"\\(?:text|operatorname)\s*\{[^{}]*\}", "", text)
    if re.search(r"(?<![A-Za-z\\])[A-Za-z]{4,}", re.sub(r"\\[A-Za-z]+|arc(?:sin|cos|tan)|sqrt", " ", bare)):
        return False
    return bool(re.search(r"\\[A-Za-z]+|\d|[-+*/^=]|[A-Za-z]", bare))


def rounds_to(gold: str, gold_value: Decimal, answer: str, answer_value: Decimal) -> bool:
    """Return whether one of them is a decimal with enough digits and the correct rounding of the other.

    Of two decimals only the gold may have more digits; an answer with more digits has to be exact.
    """
    gold_places, answer_places = _places(gold), _places(answer)
    if gold_places is not None and answer_places is not None and answer_places >= gold_places:
        return False
    if answer_places is not None:
        return _rounds(gold_value, answer_value, answer_places)
    return gold_places is not None and _rounds(answer_value, gold_value, gold_places)


def _places(text: str) -> int | None:
    """Return the number of decimals of a plain decimal, or None."""
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

"""Compare short answers that are numbers, in digits or words, with or without the counted noun."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from palestra.grading.units import canonical, is_measure
from palestra.parsing import read_number_words

MAX_CHARS = 100  # longer texts are not parsed as counts
MAX_NOUN_WORDS = 2

_NUMBER = re.compile(r"([+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,30})(?:\.[0-9]{1,30})?)(?:\s+(.*))?", re.S)
_NOUN = re.compile(r"[a-z]+(?:[ -][a-z]+)?")
# Words that change the value of a number, or that make it a date or a time.
_NOT_NOUN = re.compile(
    r"\b(?:hundreds?|thousands?|millions?|billions?|trillions?|dozens?|scores?|percent|per|pairs?|half|halves|thirds?|"
    r"quarters?|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand)ths?|if|when|where|times|degrees?|squared|cubed|point|plus|minus|and|or|to|not|no|nor|but|"
    r"more|less|fewer|than|about|over|under|out|of|in|at|on|by|ago|later|earlier|before|after|bc|bce|ad|ce|am|pm|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|st|nd|rd|th|k|m|bn)\b"
)


class Count(NamedTuple):
    """A number and the counted noun, which may be empty."""

    number: Fraction
    noun: str


def parse_count(text: str) -> Count | None:
    """Parse "79,578 inhabitants", "79578" or "twenty-one"; return None for "2 million", "3 May" and other text."""
    if len(text) > MAX_CHARS:
        return None
    match = _NUMBER.fullmatch(text)
    if match is not None:
        number, noun = Fraction(match[1].replace(",", "")), match[2] or ""
    else:
        words = text.split()
        for count in range(len(words), max(0, len(words) - MAX_NOUN_WORDS - 1), -1):
            value = read_number_words(" ".join(words[:count]))
            if value is not None:
                number, noun = Fraction(value), " ".join(words[count:])
                break
        else:
            return None
    if noun and (not _NOUN.fullmatch(noun) or _NOT_NOUN.search(noun)):
        return None
    return Count(number, noun)


def same_count(one: str, two: str) -> bool:
    """Return whether two texts state the same number and, if both have a noun, the same noun.

    A unit of measurement must not be omitted, so "5 km" does not equal "5". Any other noun may be omitted, such as the
    noun in "79,578 inhabitants".
    """
    left = parse_count(one)
    right = None if left is None else parse_count(two)
    if left is None or right is None or left.number != right.number:
        return False
    nouns = [canonical(count.noun) for count in (left, right) if count.noun]
    if len(nouns) == 1:
        return not is_measure(nouns[0])
    return len(set(nouns)) <= 1

"""Split the text of an answer into a number and its unit, percent sign or currency, and convert units."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

# Factors relative to the base unit of each kind.
_LENGTH = {"m": "1", "km": "1000", "cm": "1/100", "mm": "1/1000", "dm": "1/10"}
_LENGTH |= {"in": "127/5000", "ft": "381/1250", "yd": "1143/1250", "mi": "201168/125"}
_KINDS: dict[str, dict[str, str]] = {
    "length": _LENGTH,
    "mass": {"g": "1", "kg": "1000", "mg": "1/1000", "t": "1000000", "lb": "45359237/100000", "oz": "45359237/1600000"},
    "time": {"s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "months": {"month": "1", "year": "12"},
    "money": {"dollar": "1", "cent": "1/100"},
    "speed": {"m/s": "1", "km/h": "5/18", "mi/h": "1397/3125"},
    "euros": {"euro": "1"},
    "gallons": {"gal": "1"},
    "angle": {"degree": "1"},
    "radians": {"radian": "1"},
    "celsius": {"celsius": "1"},
    "fahrenheit": {"fahrenheit": "1"},
}
_TABLE: dict[str, tuple[str, Fraction]] = {
    **{name: (kind, Fraction(size)) for kind, sizes in _KINDS.items() for name, size in sizes.items()},
    **{f"{name}^2": ("area", Fraction(size) ** 2) for name, size in _LENGTH.items()},
    **{f"{name}^3": ("volume", Fraction(size) ** 3) for name, size in _LENGTH.items()},
    "L": ("volume", Fraction(1, 1000)),
    "mL": ("volume", Fraction(1, 10**6)),
}
_ALIASES = {
    "m": "meter meters metre metres m",
    "km": "kilometer kilometers kilometre kilometres km kms",
    "cm": "centimeter centimeters centimetre centimetres cm cms",
    "mm": "millimeter millimeters millimetre millimetres mm",
    "dm": "decimeter decimeters decimetre decimetres dm",
    "in": "inch inches in",
    "ft": "foot feet ft",
    "yd": "yard yards yd",
    "mi": "mile miles mi",
    "g": "gram grams g gm",
    "kg": "kilogram kilograms kg kgs",
    "mg": "milligram milligrams mg",
    "t": "tonne tonnes",
    "lb": "lb lbs pound pounds",
    "oz": "ounce ounces oz",
    "s": "second seconds sec secs s",
    "min": "minute minutes min mins",
    "h": "hour hours hr hrs h",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "year years yr yrs",
    "L": "liter liters litre litres l L",
    "mL": "milliliter milliliters millilitre millilitres ml mL",
    "gal": "gallon gallons gal",
    "dollar": "dollar dollars usd USD",
    "cent": "cent cents",
    "euro": "euro euros",
    "degree": "degree degrees deg",
    "unit": "unit units",
    "radian": "radian radians rad rads",
    "km/h": "kmh kph kmph",
    "mi/h": "mph",
    "m/s": "mps",
}
_UNIT_NAMES = {alias: unit for unit, aliases in _ALIASES.items() for alias in aliases.split()}
_MULTIPLIERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NOT_UNIT = re.compile(
    "and|or|pi|sin|cos|tan|log|ln|exp|sqrt|sec|csc|cot|arcsin|arccos|arctan|mod|times|plus|minus|over|half|third|"
    "quarter|dozen|squared|cubed|if|for|when|where|with|is|are|of|negative|infinity|[exyz]|to|through|divided|by|not|but|"
    "instead|modulo|less|more|than|from|point|pairs?|hal(?:f|ves)|thirds|quarters|(?:four|fif|six|seven|eigh|nin|ten|"
    "hundred|thousand|million)ths?"
)
_CURRENCY = {"$": "dollar", "US$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee"}
_CURRENCY |= {"Rs": "rupee", "Rs.": "rupee"}
_PREFIX = re.compile(r"^(-?)\s*(US\$|[$€£¥₹]|Rs\.?(?=[\s\d]))\s*(?=[-\d.\\])")
_TEXT_UNIT = re.compile(r"^(?P<body>.*\S)\s*\\text\s*\{(?P<unit>[^{}]*)\}\s*(?P<power>\^\s*\{?\s*[23]\s*\}?)?$", re.S)
_WORD_UNIT = re.compile(
    r"^(?P<body>.*[\d)}!])\s+(?P<unit>[A-Za-z][A-Za-z./ -]*?)(?P<power>\^\s*\{?\s*[23]\s*\}?)?$", re.S
)
_ATTACHED_UNIT = re.compile(r"^(?P<body>-?[\d./]*\d)(?P<unit>[A-Za-z/]{2,8})(?P<power>\^\s*\{?\s*[23]\s*\}?)?$")
_DEGREES = re.compile(r"^(?P<body>.*[\d)}])\s*°\s*(?P<scale>[CFcf]?)$", re.S)
_PERCENT = re.compile(r"^(?P<body>.*\S)\s*(?:%|\\text\s*\{\s*(?:percent|per cent)\s*\}|(?<=[\d\s])per ?cent)$", re.S)
_BASE = re.compile(r"^(?P<body>[0-9A-Fa-f]+)\s*_\s*\{?(?:\\text\{)?\s*(?P<base>\d{1,2}|\\text\{[a-z]+\})\s*\}?\}?$")
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_NUMBERS += "seventeen eighteen nineteen twenty"
_SPELLED = {word: str(number) for number, word in enumerate(_NUMBERS.split())}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as text, and its unit."""

    body: str
    unit: str = ""
    percent: bool = False


@functools.lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Split `text` into a number and a unit; if there is no unit, the whole text is the number."""
    spelled = _SPELLED.get(text.casefold().strip())
    if spelled is not None:
        return Quantity(spelled)
    match = _BASE.match(text)
    if match is not None:
        return Quantity(match["body"], f"base {match['base']}")
    unit = ""
    prefix = _PREFIX.match(text)
    if prefix is not None:
        unit, text = _CURRENCY[prefix[2]], prefix[1] + text[prefix.end() :]
    elif text.endswith("$") and text[:-1].strip()[-1:].isdigit():
        unit, text = "dollar", text[:-1].strip()
    match = _PERCENT.match(text)
    if match is not None:
        return Quantity(match["body"].strip(), unit, percent=True)
    match = _DEGREES.match(text)
    if match is not None and _is_number(match["body"]):
        scale = {"c": "celsius", "f": "fahrenheit"}.get(match["scale"].lower(), "degree")
        return Quantity(match["body"].strip(), scale)
    match = _TEXT_UNIT.match(text) or _WORD_UNIT.match(text) or _ATTACHED_UNIT.match(text)
    if match is None:
        return Quantity(text, unit)
    return _quantity_with_words(text, match, unit)


def _quantity_with_words(text: str, match: re.Match[str], unit: str) -> Quantity:
    body, words = match["body"].strip(), match["unit"].strip(" .")
    attached = match.re is _ATTACHED_UNIT
    power = re.sub(r"[\s{}]", "", match["power"] or "")
    first = words.split(" ")[0].casefold() if words else ""
    if first in _MULTIPLIERS:
        rest = words.partition(" ")[2].strip()
        body = f"({body})*10^{{{_MULTIPLIERS[first]}}}"
        return Quantity(body, unit or (canonical(rest, power) if rest else ""))
    if not words:
        return Quantity(body, unit)
    name = canonical(words, power)
    if attached and name not in _TABLE:
        return Quantity(text, unit)  # a product such as 2ab
    is_word = match.re is _WORD_UNIT
    if is_word and len(words) < 2 and name not in _TABLE:
        return Quantity(text, unit)  # a product such as 2 x
    if any(word in _SPELLED for word in words.casefold().split(" ")):
        return Quantity(text, unit)  # several numbers, as in "1 in three"
    if _NOT_UNIT.fullmatch(first) or (is_word and not _is_number(body)):
        return Quantity(text, unit)  # an expression such as 2 sin t
    return Quantity(body, unit or name)


def _is_number(body: str) -> bool:
    """Return whether the text has no letters except in LaTeX commands that numbers may contain."""
    return re.search("[A-Za-z]", re.sub(r"\\(?:frac|sqrt|pi)", "", body)) is None


def canonical(words: str, power: str = "") -> str:
    """Return the canonical name of a known unit; for other words, the lower-case form without plural s."""
    words = re.sub(r"\s+", " ", words.replace(".", "")).strip()
    for prefix, exponent in (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3"), ("cu ", "^3")):
        if words.casefold().startswith(prefix):
            words, power = words[len(prefix) :], exponent
    for suffix, exponent in ((" squared", "^2"), (" cubed", "^3")):
        if words.casefold().endswith(suffix):
            words, power = words[: -len(suffix)], exponent
    per = re.split(r"\s*/\s*| per ", words)
    if len(per) == 2 and all(_UNIT_NAMES.get(side) for side in per):
        return f"{_UNIT_NAMES[per[0]]}/{_UNIT_NAMES[per[1]]}"
    name = _UNIT_NAMES.get(words) or (_UNIT_NAMES.get(words.casefold()) if len(words) > 2 else None)
    if name is not None:
        return f"{name}{power}"
    return " ".join(word.removesuffix("s") for word in words.casefold().split()) + power


def conversion_factor(gold: str, answer: str) -> Fraction | None:
    """Return the factor from the answer's unit to the gold unit: 1 if one is missing, None if they are incompatible."""
    if not gold or not answer or gold == answer or "unit" in (gold, answer):  # the word "units" matches any unit
        return Fraction(1)
    left, right = _TABLE.get(gold), _TABLE.get(answer)
    if left is not None and right is not None:
        return right[1] / left[1] if left[0] == right[0] else None
    if left is not None or right is not None:
        return None
    shared = set(gold.split()) & set(answer.split()) - {"of", "the", "a", "per", "base"}
    return Fraction(1) if shared else None


def is_measure(name: str) -> bool:
    """Return whether a canonical name is a unit of measurement, such as "km"."""
    return name in _TABLE


def add_units(parts: Sequence[tuple[Fraction, str]]) -> str | None:
    """Return the sum of the quantities, converted to the last unit, or None if the units do not fit together."""
    names = [canonical(unit) for _, unit in parts]
    entries = [_TABLE.get(name) for name in names]
    sizes = [size for entry in entries if entry is not None for kind, size in [entry] if kind == _kind(entries[0])]
    if len(sizes) < len(parts) or any(small >= large for large, small in pairwise(sizes)):
        return None
    total = sum((number * size for (number, _), size in zip(parts, sizes, strict=True)), Fraction(0)) / sizes[-1]
    number = str(total) if total.denominator > 1 else str(total.numerator)
    return f"{number} \\text{{{names[-1]}}}"


def _kind(entry: tuple[str, Fraction] | None) -> str:
    return "" if entry is None else entry[0]

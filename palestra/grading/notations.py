r"""Compare answers in special notations: congruences, excluded points, number words, and quantities in several units.

`same_set` compares congruences (`x \equiv 7 \pmod{12}`) and the real line without some points (`x \ne 0`,
`(-\infty,0)\cup(0,\infty)`, `\mathbb{R}\setminus\{0\}`). `rewrite` replaces number words ("twenty-one apples") and
quantities in several units ("1 hour 30 minutes") with a number and a unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from palestra.grading.answer_parser import Group, Leaf, Node, Relation, Union, normalize, parse_answer, split_commas
from palestra.grading.expression_parser import parse_value
from palestra.grading.units import add_units
from palestra.parsing import read_number_words

Same = Callable[[Node, Node], bool]

MAX_CHARS = 400  # maximum length of an answer in one of these notations

_MODULUS = re.compile(
    r"^(?P<body>.+?)[\s,]*(?:\(\s*)?(?:\\[pb]?mod|\\text\s*\{\s*mod\s*\}|(?<![A-Za-z\\])mod(?![a-z]))\s*"
    r"(?:\\text\s*\{\s*)?[{(]?\s*(?P<modulus>\d{1,30})\s*[})]*$",
    re.S,
)
_CONGRUENT = re.compile(r"^(?P<name>[A-Za-z](?:_\{?\w+\}?)?)\s*(?:\\equiv(?![A-Za-z])|=)\s*(?P<residues>.+)$", re.S)
_REAL_LINE = re.compile(
    r"^(?:[A-Za-z]\s*\\in\s*)?(?:\\mathbb\s*\{?R\}?|(?:the\s+set\s+of\s+)?all\s+real\s+(?:numbers|values)(?:\s+(?:of\s+)?[a-z](?![a-z]))?"
    r"|all\s+reals)(?P<rest>.*)$",
    re.S | re.I,
)
_EXCEPT = re.compile(
    r"^\s*,?\s*(?:\\setminus|\\backslash|-|except(?:\s+for)?|excluding|other\s+than|without)(?![A-Za-z])\s*"
    r"(?P<points>.+)$",
    re.S,
)
_SIGN = re.compile(r"\\ne|\\cup|\\mathbb|real")  # an answer without these signs excludes no points
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_COMPOUND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?\s*(?:,?\s*and\s|,)?")
_UNIT_QUOTIENT = re.compile(r"\\text\s*\{([^{}]*)\}\s*/\s*\\text\s*\{([^{}]*)\}")
_CURRENCY_CODE = re.compile(r"^(?:US\s?\$|USD|US dollars)\s*(?=[\d.])", re.I)
_ALL_REALS = re.compile(r"(?:the )?(?:set of )?all real(?: numbers| values)?(?:(?: of)? [a-z])?|all reals", re.I)
_MAX_NUMBER_WORDS = 12
_PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourths": 4}
_PARTS |= {"fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "eighth": 8, "eighths": 8, "tenth": 10, "tenths": 10}


@dataclass(frozen=True, slots=True)
class Congruence:
    """The numbers that have one of `residues` modulo `modulus`."""

    name: str
    residues: tuple[str, ...]
    modulus: int


@dataclass(frozen=True, slots=True)
class Excluded:
    """All real numbers except `points`."""

    name: str
    points: tuple[Node, ...]


def same_set(gold: str, answer: str, same: Same) -> bool:
    """Return whether two normalized answers are equal congruences or exclude the same points from the real line."""
    if len(gold) > MAX_CHARS or len(answer) > MAX_CHARS:
        return False
    if "mod" in answer:
        one, two = parse_congruence(gold), parse_congruence(answer)
        if two is not None:
            return _same_congruence(one, two) if one is not None else _is_residue(gold, two)
    if _SIGN.search(gold) is None or _SIGN.search(answer) is None:
        return False
    left, right = parse_excluded(gold, same), parse_excluded(answer, same)
    if left is None or right is None or (left.name and right.name and left.name != right.name):
        return False
    return _covers(left.points, right.points, same) and _covers(right.points, left.points, same)


def _covers(ones: tuple[Node, ...], others: tuple[Node, ...], same: Same) -> bool:
    return all(any(same(a, b) for b in others) for a in ones)


def parse_congruence(text: str) -> Congruence | None:
    r"""Parse `x \equiv 1, 5 \pmod{12}` or `7 \pmod{12}`; return None for other text."""
    match = _MODULUS.match(text.strip()) if "mod" in text else None
    if match is None or (modulus := int(match["modulus"])) < 2:
        return None
    body = match["body"].strip().removesuffix("(").strip()
    relation = _CONGRUENT.match(body)
    name, residues = (relation["name"], relation["residues"]) if relation else ("", body)
    parts = split_commas(re.sub(r"\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b", ",", residues))
    parts = [part for part in parts if part]
    return Congruence(name, tuple(parts), modulus) if parts and not name.isdigit() else None


def without_modulus(answer: str) -> str:
    r"""Return the residue of an answer such as `x \equiv 7 \pmod{12}`; return other answers unchanged."""
    congruence = parse_congruence(normalize(answer)) if "mod" in answer and len(answer) <= MAX_CHARS else None
    return congruence.residues[0] if congruence is not None and len(congruence.residues) == 1 else answer


def _same_congruence(one: Congruence, two: Congruence) -> bool:
    if one.modulus != two.modulus or (one.name and two.name and one.name != two.name):
        return False
    left, right = _reduced(one), _reduced(two)
    return left is not None and left == right


def _reduced(congruence: Congruence) -> frozenset[int] | None:
    numbers = set()
    for residue in congruence.residues:
        value = parse_value(residue)
        number = None if value is None else value.rational()
        if number is None or number.denominator != 1:
            return None
        numbers.add(int(number) % congruence.modulus)
    return frozenset(numbers)


def _is_residue(gold: str, congruence: Congruence) -> bool:
    """Return whether the gold answer is the only residue and is reduced, so that the modulus adds no information."""
    expected = parse_value(gold)
    value = parse_value(congruence.residues[0]) if len(congruence.residues) == 1 else None
    number = None if value is None else value.rational()
    if expected is None or value is None or number is None or not 0 <= number < congruence.modulus:
        return False
    return value.same(expected)


def parse_excluded(text: str, same: Same) -> Excluded | None:
    """Parse the real line without some points; return None for other sets."""
    words = _TEXT.sub(r" \1 ", text).strip()
    line = _REAL_LINE.match(words)
    if line is not None:
        exception = _EXCEPT.match(line["rest"])
    if line is not None and exception is not None:
        points = exception["points"].strip().removeprefix("\\{").removesuffix("\\}").strip()
        return Excluded("", _items(parse_answer(re.sub(r"^[A-Za-z]\s*=\s*", "", points))))
    node = parse_answer(text)
    if isinstance(node, Union):
        return _gaps(node, same)
    parts = node.items if isinstance(node, Group) and node.bracket == "" else (node,)
    points_found: list[Node] = []
    names = set()
    for part in parts:
        if isinstance(part, Relation):
            if part.operators != ("\\ne",):
                return None
            names.add(part.sides[0])
            points_found += _items(parse_answer(part.sides[1]))
        elif isinstance(part, Leaf) and names:  # the second point of x \ne 1, 2
            points_found.append(part)
        elif part != _WHOLE_LINE:
            return None
    if len(names) != 1 or not re.fullmatch(r"[A-Za-z]|\\[a-z]+", name := names.pop()):
        return None
    return Excluded(name, tuple(points_found))


_WHOLE_LINE = Group("(", (Leaf("-\\infty"), Leaf("\\infty")))


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Group) and node.bracket in ("", "{") else (node,)


def _gaps(union: Union, same: Same) -> Excluded | None:
    """Return the points between open intervals that cover the rest of the real line."""
    ends: list[tuple[Node, Node]] = []
    for item in union.items:
        if not isinstance(item, Group) or item.bracket != "(" or len(item.items) != 2 or any(item.closed):
            return None
        ends.append((item.items[0], item.items[1]))
    if ends[0][0] != Leaf("-\\infty") or ends[-1][1] not in (Leaf("\\infty"), Leaf("+\\infty")):
        return None
    points = tuple(high for _, high in ends[:-1])
    follows = all(same(point, low) for point, (low, _) in zip(points, ends[1:], strict=True))
    return Excluded("", points) if follows else None


def rewrite(text: str) -> str:
    """Return a normalized answer with number words and quantities in several units replaced by one number."""
    if len(text) > MAX_CHARS:
        return text
    joined = _UNIT_QUOTIENT.sub(r"\\text{\1/\2}", text)  # \text{m}/\text{s}
    plain = " ".join(_TEXT.sub(r" \1 ", joined).split()) if "\\text" in text else text
    first = plain[:1]
    if first.isdigit():
        return _compound(plain) or joined
    if first.isalpha():
        if _ALL_REALS.fullmatch(plain):
            return "\\mathbb{R}"
        return _CURRENCY_CODE.sub("$", plain) if _CURRENCY_CODE.match(plain) else _spelled(plain) or joined
    return f"${plain[1:].strip()}" if first == "$" else joined


def _compound(text: str) -> str | None:
    """Add up a quantity in several units, each smaller than the one before, such as 1 hour 30 minutes."""
    parts: list[tuple[Fraction, str]] = []
    at = 0
    while at < len(text) and len(parts) < 5:
        match = _COMPOUND_UNIT.match(text, at)
        if match is None:
            return None
        parts.append((Fraction(match[1]), match[2]))
        at = match.end()
    return add_units(parts) if at == len(text) and len(parts) > 1 else None


def _spelled(text: str) -> str | None:
    """Replace the number words at the start of a text with digits, if nothing but a unit follows."""
    words = text.replace("-", " ").split()
    for count in range(min(len(words), _MAX_NUMBER_WORDS), 0, -1):
        number = read_number_words(" ".join(words[:count]))
        if number is not None:
            rest = words[count:]
            if len(rest) == 1 and rest[0].casefold() in _PARTS:
                return f"{number}/{_PARTS[rest[0].casefold()]}"
            known = len(rest) <= 3 and not any(read_number_words(word) is not None for word in rest)
            return " ".join([str(number), *rest]) if known else None
    return None

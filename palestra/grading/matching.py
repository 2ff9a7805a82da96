"""Two answers in parts -> the same, or not. Leaves that exact arithmetic cannot decide are put to an oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from palestra.grading.exact import TooLarge, Value
from palestra.grading.expressions import value_of
from palestra.grading.reading import Group, Leaf, Matrix, Node, Relation, Union, read
from palestra.grading.texts import are_words, is_mathematical, is_wordy, rounds_to, words
from palestra.grading.units import Quantity, factor, quantity

Oracle = Callable[[str, str], bool]  # (gold, answer) as LaTeX -> equal

_BLANKS = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_VARIABLE = re.compile(r"(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:\{\w+\}|\w))?'*")
_CHOICE = re.compile(r"\(?\s*(?:\\text\{)?\(?([A-J])\)?\}?\s*\)?\.?|\(?([A-J])[).:]\s.*", re.S)
_CHOSEN = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\\text\{\s*)?\(?\s*([A-Ja-j])\s*(?:\)|\}|\.(?!\d)|:)*\s*(?:(?<=[).:}])\s*\S.*)?",
    re.S,
)
_EMPTY = frozenset(["no solution", "no solutions", "no real solution", "no real solutions", "none", "empty set"])
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_INFINITE = {
    "infinity": "\\infty",
    "inf": "\\infty",
    "+\\infty": "\\infty",
    "+infinity": "\\infty",
    "-infinity": "-\\infty",
}


class Matcher:
    """Compares with one gold after another; counts what it asks of the oracle."""

    def __init__(self, oracle: Oracle, *, tolerance: float | None = None, most_questions: int = 40) -> None:
        self._oracle = oracle
        self._tolerance = None if tolerance is None else Fraction(tolerance)
        self._left = most_questions
        self._asked: dict[tuple[str, str], bool] = {}

    def same(self, gold: Node, answer: Node) -> bool:
        """Is `answer` what `gold` says?"""
        gold, answer = _simple(gold), _simple(answer)
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return self._related(gold, answer)
        if isinstance(gold, Matrix) or isinstance(answer, Matrix):
            return self._matrices(gold, answer)
        if isinstance(gold, Union) or isinstance(answer, Union):
            return self._unions(gold, answer)
        if isinstance(gold, Group) and isinstance(answer, Group):
            return self._groups(gold, answer)
        if isinstance(gold, Group):
            return isinstance(answer, Leaf) and self._lone(gold, answer, swapped=False)
        if isinstance(answer, Group):
            return self._lone(answer, gold, swapped=True)
        return self.leaf(gold.text, answer.text)

    # Structures

    def _groups(self, gold: Group, answer: Group) -> bool:
        one, two = gold.items, answer.items
        kinds = {gold.bracket, answer.bracket}
        if kinds <= {"", "{"}:
            if kinds == {"{"}:
                return self._covers(one, two) and self._covers(two, one, swapped=True)
            return len(one) == len(two) and self._matched(one, two)
        if len(one) != len(two):
            return False
        if "{" in kinds or ("|" in kinds and len(kinds) > 1):
            return False
        if len(one) == 2 and "" not in kinds and gold.closed != answer.closed:
            return False  # an open interval is not a closed one
        return all(self.same(g, a) for g, a in zip(one, two, strict=True))

    def _covers(self, ones: tuple[Node, ...], others: tuple[Node, ...], *, swapped: bool = False) -> bool:
        """Is every one of the first among the second?"""
        return all(any(self.same(b, a) if swapped else self.same(a, b) for b in others) for a in ones)

    def _matched(self, golds: tuple[Node, ...], answers: tuple[Node, ...]) -> bool:
        """In some order, each used once; equality is transitive, so the first that fits will do."""
        left = list(answers)
        for gold in golds:
            for index, answer in enumerate(left):
                if self.same(gold, answer):
                    del left[index]
                    break
            else:
                return False
        return not left

    def _lone(self, group: Group, leaf: Leaf, *, swapped: bool) -> bool:
        """A group against one leaf: the only member of a set, a ratio against a fraction, "no solution"."""
        if not group.items:
            return words(leaf.text) in _EMPTY
        if group.bracket == "{" and len(group.items) == 1:
            only = group.items[0]
            return self.same(leaf, only) if swapped else self.same(only, leaf)
        if group.bracket == "|" and len(group.items) == 2 and "/" in leaf.text.replace("\\frac", "/"):
            top, bottom = (item.text for item in group.items if isinstance(item, Leaf))
            quotient = f"\\frac{{{top}}}{{{bottom}}}"
            return self.leaf(leaf.text, quotient) if swapped else self.leaf(quotient, leaf.text)
        if group.bracket == "|":
            clock = ":".join(item.text for item in group.items if isinstance(item, Leaf))
            return re.sub(r"\s*(?:\\text\{)?\s*[ap]\.?m\.?\s*\}?$", "", leaf.text, flags=re.I) == clock  # 10:30 am
        return False

    def _unions(self, gold: Node, answer: Node) -> bool:
        one, two = _parts(gold), _parts(answer)
        return one is not None and two is not None and len(one) == len(two) and self._matched(one, two)

    def _matrices(self, gold: Node, answer: Node) -> bool:
        one, two = _rows(gold), _rows(answer)
        if one is None or two is None:
            return False
        if len(one) != len(two) and isinstance(gold, Matrix) != isinstance(answer, Matrix):
            one, two = _flat(one), _flat(two)  # a column against a tuple
        return [len(row) for row in one] == [len(row) for row in two] and all(
            self.same(g, a) for row, other in zip(one, two, strict=True) for g, a in zip(row, other, strict=True)
        )

    # Relations

    def _related(self, gold: Node, answer: Node) -> bool:
        one, two = _interval(gold), _interval(answer)
        if one is not None and two is not None:
            same_variable = one[0] == two[0] or not one[0] or not two[0]
            return same_variable and self._groups(one[1], two[1])
        if isinstance(gold, Relation) and isinstance(answer, Relation):
            return self._relations(gold, answer)
        if isinstance(gold, Relation):
            return self._named(gold) and self.same(read(gold.sides[-1]), answer)
        return isinstance(answer, Relation) and self._named(answer) and self.same(gold, read(answer.sides[-1]))

    def _named(self, relation: Relation) -> bool:
        """Does it say what something is, so that its right side is the answer?"""
        if not set(relation.signs) <= {"=", "\\approx"}:
            return False
        return _names_something(relation.sides[0]) or self._true(relation)

    def _true(self, relation: Relation) -> bool:
        """A sum and its result, as 2+3=5."""
        values = [value_of(side) for side in relation.sides]
        first = values[0]
        return first is not None and not first.variables() and all(v is not None and v.same(first) for v in values)

    def _relations(self, gold: Relation, answer: Relation) -> bool:
        if set(gold.signs) | set(answer.signs) != {"="}:
            if gold.signs == answer.signs and self._sides(gold.sides, answer.sides):
                return True
            flipped = tuple(_FLIPPED.get(sign, sign) for sign in reversed(answer.signs))
            if gold.signs == flipped and self._sides(gold.sides, answer.sides[::-1]):
                return True
            return _scaled(gold, answer) or self.ask(_written(gold), _written(answer))
        one, two = (gold.sides[0], gold.sides[-1]), (answer.sides[0], answer.sides[-1])
        for g, a in ((one, two), (one, two[::-1])):
            if _BLANKS.sub("", g[0]) == _BLANKS.sub("", a[0]) and self.same(read(g[1]), read(a[1])):
                return True
        sides = [value_of(side) for side in (*one, *two)]
        if any(side is None for side in sides):
            return self.ask(f"{one[0]}={one[1]}", f"{two[0]}={two[1]}")
        left, right, third, fourth = (side for side in sides if side is not None)
        zero = left - right
        return zero.ratio(third - fourth) is not None and bool(zero.variables())

    def _sides(self, golds: tuple[str, ...], answers: tuple[str, ...]) -> bool:
        return all(self.same(read(gold), read(answer)) for gold, answer in zip(golds, answers, strict=True))

    # Leaves

    def leaf(self, gold: str, answer: str) -> bool:
        """Two expressions, quantities, choices or words."""
        gold, answer = _INFINITE.get(gold.replace(" ", ""), gold), _INFINITE.get(answer.replace(" ", ""), answer)
        if _BLANKS.sub("", gold) == _BLANKS.sub("", answer):
            return bool(gold.strip())
        choice = _CHOICE.fullmatch(gold)
        if choice is not None:
            chosen = _CHOSEN.fullmatch(answer)
            if chosen is not None:
                return chosen[1].upper() == (choice[1] or choice[2])
        one, two = quantity(gold), quantity(answer)
        if are_words(one.body, two.body):
            return words(gold) == words(answer)
        left, large = _bounded_value(one.body)
        right, _ = _bounded_value(two.body) if left is None else (value_of(two.body), False)
        if large and right is not None:
            return False
        if left is not None and right is not None:
            return self._values(left, one, right, two)
        if is_wordy(gold) and is_wordy(answer) and words(gold) == words(answer):
            return True
        if "infty" in gold or "infty" in answer:
            return False
        ratio = factor(one.unit, two.unit)
        if ratio != 1 or one.percent != two.percent:
            return False
        return self.ask(one.body, two.body)

    def _values(self, left: Value, one: Quantity, right: Value, two: Quantity) -> bool:
        ratio = factor(one.unit, two.unit)
        if ratio is None:
            return False
        if ratio != 1:
            right = right * Value.of(ratio)
        if one.percent == two.percent:
            return self._equal(left, one.body, right, two.body)
        hundredth = Value.of(Fraction(1, 100))
        percent, other = (left, right) if one.percent else (right, left)
        if self._equal(percent * hundredth, "", other, two.body if one.percent else one.body):
            return True
        size = percent.decimal()  # "12" for "12%" is how it is meant; "0.5" for "0.5%" is not
        return size is not None and abs(size) > 1 and self._equal(left, one.body, right, two.body)

    def _equal(self, left: Value, gold: str, right: Value, answer: str) -> bool:
        if left.same(right):
            return True
        a, b = left.decimal(), right.decimal()
        if a is None or b is None:
            return False
        if self._tolerance is not None:
            exact_a, exact_b = left.rational(), right.rational()
            wide = exact_a if exact_a is not None else Fraction(a)
            return abs(wide - (exact_b if exact_b is not None else Fraction(b))) <= self._tolerance * abs(wide)
        return rounds_to(gold, a, answer, b)

    def ask(self, gold: str, answer: str) -> bool:
        """What the oracle says, where both could be mathematics."""
        gold, answer = _in_radians(gold), _in_radians(answer)
        if not is_mathematical(gold) or not is_mathematical(answer):
            return False
        known = self._asked.get((gold, answer))
        if known is None:
            if self._left <= 0:
                raise TooLarge("more comparisons than an answer needs")
            self._left -= 1
            known = self._asked[gold, answer] = self._oracle(gold, answer)
        return known


def _simple(node: Node) -> Node:
    """A union of plain sets is a set."""
    if isinstance(node, Union) and all(isinstance(item, Group) and item.bracket == "{" for item in node.items):
        return Group("{", tuple(part for item in node.items if isinstance(item, Group) for part in item.items))
    return node


def _parts(node: Node) -> tuple[Node, ...] | None:
    """What a union is made of; inequalities joined by "or" are one, too."""
    if isinstance(node, Union):
        return tuple(_as_group(item) for item in node.items)
    if isinstance(node, Group) and node.bracket == "":
        intervals = [_interval(item) for item in node.items]
        if all(interval is not None for interval in intervals):
            return tuple(interval[1] for interval in intervals if interval is not None)
    return None


def _as_group(node: Node) -> Node:
    interval = _interval(node)
    return node if interval is None else interval[1]


def _rows(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    if isinstance(node, Matrix):
        return node.rows
    if isinstance(node, Group) and node.bracket in ("(", "["):
        if all(isinstance(item, Group) and item.bracket in ("(", "[") for item in node.items):
            return tuple(item.items for item in node.items if isinstance(item, Group))
        return (node.items,)
    return None


def _flat(rows: tuple[tuple[Node, ...], ...]) -> tuple[tuple[Node, ...], ...]:
    if len(rows) == 1:
        return rows
    return (tuple(row[0] for row in rows),) if all(len(row) == 1 for row in rows) else rows


def _interval(node: Node) -> tuple[str, Group] | None:
    """(variable, interval) of an inequality in one variable, or of an interval itself."""
    if isinstance(node, Group):
        return ("", node) if node.bracket in ("(", "[") and len(node.items) == 2 else None
    if not isinstance(node, Relation) or not set(node.signs) <= set(_FLIPPED):
        return None
    sides, signs = node.sides, node.signs
    if len({sign in ("<", "\\le") for sign in signs}) != 1:
        return None
    if signs[0] in (">", "\\ge"):
        sides, signs = sides[::-1], tuple(_FLIPPED[sign] for sign in reversed(signs))
    if len(sides) == 3 and _VARIABLE.fullmatch(sides[1]):
        return sides[1], _bounds(sides[0], sides[2], signs[0] == "\\le", signs[1] == "\\le")
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[0]):
        return sides[0], _bounds("-\\infty", sides[1], False, signs[0] == "\\le")
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[1]):
        return sides[1], _bounds(sides[0], "\\infty", signs[0] == "\\le", False)
    return None


def _bounds(low: str, high: str, closed_low: bool, closed_high: bool) -> Group:
    items = (read(low), read(high))
    return Group("[" if closed_low and closed_high else "(", items, (closed_low, closed_high))


def _scaled(gold: Relation, answer: Relation) -> bool:
    """Is one inequality a multiple of the other, as 2x < 6 of x < 3?"""
    if len(gold.signs) != 1 or len(answer.signs) != 1:
        return False
    a, b, c, d = (value_of(side) for side in (*gold.sides, *answer.sides))
    if a is None or b is None or c is None or d is None or not (a - b).variables():
        return False
    ratio = (a - b).ratio(c - d)
    size = None if ratio is None else ratio.decimal()
    if not size:
        return False
    return answer.signs[0] == (gold.signs[0] if size > 0 else _FLIPPED.get(gold.signs[0], gold.signs[0]))


def _written(relation: Relation) -> str:
    signs = [*relation.signs, ""]
    return " ".join(f"{side} {sign}" for side, sign in zip(relation.sides, signs, strict=True))


def _in_radians(text: str) -> str:
    """Degrees inside of an expression, as cos 60 degrees."""
    if "\u00b0" not in text:
        return text
    return re.sub(r"(\d+(?:\.\d+)?)\s*\u00b0", r"(\\frac{\1\\pi}{180})", text)


def _names_something(side: str) -> bool:
    """Is the left of an equation a name for its right (x, f(2), x+y, Area), rather than a calculation with it (2x)?"""
    bare = re.sub(r"_(?:\{[^{}]*\}|\w)", "", side)
    bare = re.sub(r"(?<=[A-Za-z}])\s*\([^()]*\)", "", bare)
    bare = re.sub(r"\\text\s*\{[^{}]*\}", "x", bare)
    return re.search(r"[A-Za-z]", bare) is not None and re.search(r"\d", bare) is None


def _bounded_value(text: str) -> tuple[Value | None, bool]:
    """The value, and whether it is beyond all bounds. Where both are, the oracle may try; one alone is unequal."""
    try:
        return value_of(text), False
    except TooLarge:
        return None, True

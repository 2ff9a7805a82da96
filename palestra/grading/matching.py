"""Compare two parsed answers; leaves that exact arithmetic cannot compare are compared symbolically."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from palestra.grading.answer_parser import Group, Leaf, Matrix, Node, Relation, Union, parse_answer
from palestra.grading.exact import TooLarge, Value
from palestra.grading.expression_parser import parse_value
from palestra.grading.texts import are_words, is_mathematical, is_wordy, normalize_words, rounds_to
from palestra.grading.units import Quantity, conversion_factor, parse_quantity

SymbolicEquality = Callable[[str, str], bool]  # called with two LaTeX expressions, gold and answer

_IGNORED_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_VARIABLE = re.compile(r"(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:\{\w+\}|\w))?'*")
_CHOICE = re.compile(r"\(?\s*(?:\\text\{)?\(?([A-J])\)?\}?\s*\)?\.?|\(?([A-J])[).:]\s.*", re.S)
_CHOSEN = re.compile(
    r"(?:(?i:option|choice|answer)\s+)?(?:\\text\{\s*)?\(?\s*([A-Ja-j])\s*(?:\)|\}|\.(?!\d)|:)*\s*(?:(?<=[).:}])\s*\S.*)?",
    re.S,
)
_EMPTY_SET_WORDS = frozenset(
    ["no solution", "no solutions", "no real solution", "no real solutions", "none", "empty set"]
)
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_INFINITE = {
    "infinity": "\\infty",
    "inf": "\\infty",
    "+\\infty": "\\infty",
    "+infinity": "\\infty",
    "-infinity": "-\\infty",
}


class Matcher:
    """Compare an answer with gold answers, with a limited number of symbolic comparisons."""

    def __init__(self, equal: SymbolicEquality, *, tolerance: float | None = None, max_comparisons: int = 40) -> None:
        self._symbolically_equal = equal
        self._tolerance = None if tolerance is None else Fraction(tolerance)
        self._comparisons_left = max_comparisons
        self._results: dict[tuple[str, str], bool] = {}

    def same(self, gold: Node, answer: Node) -> bool:
        """Return whether `answer` equals `gold`."""
        gold, answer = _simplify(gold), _simplify(answer)
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return self._compare_relations(gold, answer)
        if isinstance(gold, Matrix) or isinstance(answer, Matrix):
            return self._matrices(gold, answer)
        if isinstance(gold, Union) or isinstance(answer, Union):
            return self._unions(gold, answer)
        if isinstance(gold, Group) and isinstance(answer, Group):
            return self._groups(gold, answer)
        if isinstance(gold, Group):
            return isinstance(answer, Leaf) and self._group_equals_leaf(gold, answer, swapped=False)
        if isinstance(answer, Group):
            return self._group_equals_leaf(answer, gold, swapped=True)
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
            return False  # open and closed intervals differ
        return all(self.same(g, a) for g, a in zip(one, two, strict=True))

    def _covers(self, ones: tuple[Node, ...], others: tuple[Node, ...], *, swapped: bool = False) -> bool:
        """Return whether each item of `ones` equals an item of `others`."""
        return all(any(self.same(b, a) if swapped else self.same(a, b) for b in others) for a in ones)

    def _matched(self, golds: tuple[Node, ...], answers: tuple[Node, ...]) -> bool:
        """Return whether the items are equal in some order; greedy matching suffices because equality is transitive."""
        remaining = list(answers)
        for gold in golds:
            for index, answer in enumerate(remaining):
                if self.same(gold, answer):
                    del remaining[index]
                    break
            else:
                return False
        return not remaining

    def _group_equals_leaf(self, group: Group, leaf: Leaf, *, swapped: bool) -> bool:
        """Compare a group with a leaf: {x} with x, a ratio with a fraction, or the empty set with "no solution"."""
        if not group.items:
            return normalize_words(leaf.text) in _EMPTY_SET_WORDS
        if group.bracket == "{" and len(group.items) == 1:
            only = group.items[0]
            return self.same(leaf, only) if swapped else self.same(only, leaf)
        if group.bracket == "|" and len(group.items) == 2 and "/" in leaf.text.replace("\\frac", "/"):
            top, bottom = (item.text for item in group.items if isinstance(item, Leaf))
            quotient = f"\\frac{{{top}}}{{{bottom}}}"
            return self.leaf(leaf.text, quotient) if swapped else self.leaf(quotient, leaf.text)
        if group.bracket == "|":
            time = ":".join(item.text for item in group.items if isinstance(item, Leaf))  # such as 10:30
            return re.sub(r"\s*(?:\\text\{)?\s*[ap]\.?m\.?\s*\}?$", "", leaf.text, flags=re.I) == time
        return False

    def _unions(self, gold: Node, answer: Node) -> bool:
        one, two = _parts(gold), _parts(answer)
        return one is not None and two is not None and len(one) == len(two) and self._matched(one, two)

    def _matrices(self, gold: Node, answer: Node) -> bool:
        one, two = _rows(gold), _rows(answer)
        if one is None or two is None:
            return False
        if len(one) != len(two) and isinstance(gold, Matrix) != isinstance(answer, Matrix):
            one, two = _flat(one), _flat(two)  # compare a column vector with a tuple
        return [len(row) for row in one] == [len(row) for row in two] and all(
            self.same(g, a) for row, other in zip(one, two, strict=True) for g, a in zip(row, other, strict=True)
        )

    # Relations

    def _compare_relations(self, gold: Node, answer: Node) -> bool:
        one, two = _interval(gold), _interval(answer)
        if one is not None and two is not None:
            same_variable = one[0] == two[0] or not one[0] or not two[0]
            return same_variable and self._groups(one[1], two[1])
        if isinstance(gold, Relation) and isinstance(answer, Relation):
            return self._relations(gold, answer)
        if isinstance(gold, Relation):
            return self._defines_value(gold) and self.same(parse_answer(gold.sides[-1]), answer)
        return (
            isinstance(answer, Relation)
            and self._defines_value(answer)
            and self.same(gold, parse_answer(answer.sides[-1]))
        )

    def _defines_value(self, relation: Relation) -> bool:
        """Return whether the relation has the form `name = value`, so that its right side is the answer."""
        if not set(relation.operators) <= {"=", "\\approx"}:
            return False
        return _is_name(relation.sides[0]) or self._is_true_equation(relation)

    def _is_true_equation(self, relation: Relation) -> bool:
        """Return whether the relation is a true equation between numbers, such as 2+3=5."""
        values = [parse_value(side) for side in relation.sides]
        first = values[0]
        return first is not None and not first.variables() and all(v is not None and v.same(first) for v in values)

    def _relations(self, gold: Relation, answer: Relation) -> bool:
        if set(gold.operators) | set(answer.operators) != {"="}:
            if gold.operators == answer.operators and self._sides(gold.sides, answer.sides):
                return True
            flipped = tuple(_FLIPPED.get(operator, operator) for operator in reversed(answer.operators))
            if gold.operators == flipped and self._sides(gold.sides, answer.sides[::-1]):
                return True
            return _is_multiple(gold, answer) or self.compare_symbolically(_to_latex(gold), _to_latex(answer))
        one, two = (gold.sides[0], gold.sides[-1]), (answer.sides[0], answer.sides[-1])
        for g, a in ((one, two), (one, two[::-1])):
            if _IGNORED_SPACE.sub("", g[0]) == _IGNORED_SPACE.sub("", a[0]) and self.same(
                parse_answer(g[1]), parse_answer(a[1])
            ):
                return True
        sides = [parse_value(side) for side in (*one, *two)]
        if any(side is None for side in sides):
            return self.compare_symbolically(f"{one[0]}={one[1]}", f"{two[0]}={two[1]}")
        left, right, third, fourth = (side for side in sides if side is not None)
        zero = left - right
        return zero.ratio(third - fourth) is not None and bool(zero.variables())

    def _sides(self, golds: tuple[str, ...], answers: tuple[str, ...]) -> bool:
        return all(
            self.same(parse_answer(gold), parse_answer(answer)) for gold, answer in zip(golds, answers, strict=True)
        )

    # Leaves

    def leaf(self, gold: str, answer: str) -> bool:
        """Compare two expressions, quantities, choices or words."""
        gold, answer = _INFINITE.get(gold.replace(" ", ""), gold), _INFINITE.get(answer.replace(" ", ""), answer)
        if _IGNORED_SPACE.sub("", gold) == _IGNORED_SPACE.sub("", answer):
            return bool(gold.strip())
        choice = _CHOICE.fullmatch(gold)
        if choice is not None:
            chosen = _CHOSEN.fullmatch(answer)
            if chosen is not None:
                return chosen[1].upper() == (choice[1] or choice[2])
        one, two = parse_quantity(gold), parse_quantity(answer)
        if are_words(one.body, two.body):
            return normalize_words(gold) == normalize_words(answer)
        left, large = _bounded_value(one.body)
        right, _ = _bounded_value(two.body) if left is None else (parse_value(two.body), False)
        if large and right is not None:
            return False
        if left is not None and right is not None:
            return self._values(left, one, right, two)
        if is_wordy(gold) and is_wordy(answer) and normalize_words(gold) == normalize_words(answer):
            return True
        if "infty" in gold or "infty" in answer:
            return False
        ratio = conversion_factor(one.unit, two.unit)
        if ratio != 1 or one.percent != two.percent:
            return False
        return self.compare_symbolically(one.body, two.body)

    def _values(self, left: Value, one: Quantity, right: Value, two: Quantity) -> bool:
        ratio = conversion_factor(one.unit, two.unit)
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
        size = percent.decimal()  # "12" is accepted for "12%", but "0.5" is not accepted for "0.5%"
        return size is not None and abs(size) > 1 and self._equal(left, one.body, right, two.body)

    def _equal(self, left: Value, gold: str, right: Value, answer: str) -> bool:
        if left.same(right):
            return True
        a, b = left.decimal(), right.decimal()
        if a is None or b is None:
            return False
        if self._tolerance is not None:
            exact_a, exact_b = left.rational(), right.rational()
            reference = exact_a if exact_a is not None else Fraction(a)
            return abs(reference - (exact_b if exact_b is not None else Fraction(b))) <= self._tolerance * abs(
                reference
            )
        return rounds_to(gold, a, answer, b)

    def compare_symbolically(self, gold: str, answer: str) -> bool:
        """Compare two expressions symbolically if both could be mathematical; otherwise return False."""
        gold, answer = _in_radians(gold), _in_radians(answer)
        if not is_mathematical(gold) or not is_mathematical(answer):
            return False
        equal = self._results.get((gold, answer))
        if equal is None:
            if self._comparisons_left <= 0:
                raise TooLarge("too many symbolic comparisons are needed")
            self._comparisons_left -= 1
            equal = self._results[gold, answer] = self._symbolically_equal(gold, answer)
        return equal


def _simplify(node: Node) -> Node:
    """Convert a union of finite sets to a single set."""
    if isinstance(node, Union) and all(isinstance(item, Group) and item.bracket == "{" for item in node.items):
        return Group("{", tuple(part for item in node.items if isinstance(item, Group) for part in item.items))
    return node


def _parts(node: Node) -> tuple[Node, ...] | None:
    """Return the parts of a union, or the inequalities joined by "or"; return None for other nodes."""
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
    if isinstance(node, Group) and node.bracket in ("(", "[") and node.closed[0] == node.closed[1]:
        if all(isinstance(item, Group) and item.bracket in ("(", "[") for item in node.items):
            return tuple(item.items for item in node.items if isinstance(item, Group))
        return (node.items,)
    return None


def _flat(rows: tuple[tuple[Node, ...], ...]) -> tuple[tuple[Node, ...], ...]:
    if len(rows) == 1:
        return rows
    return (tuple(row[0] for row in rows),) if all(len(row) == 1 for row in rows) else rows


def _interval(node: Node) -> tuple[str, Group] | None:
    """Return (variable, interval) for an interval or an inequality in one variable, else None."""
    if isinstance(node, Group):
        return ("", node) if node.bracket in ("(", "[") and len(node.items) == 2 else None
    if not isinstance(node, Relation) or not set(node.operators) <= set(_FLIPPED):
        return None
    sides, operators = node.sides, node.operators
    if len({operator in ("<", "\\le") for operator in operators}) != 1:
        return None
    if operators[0] in (">", "\\ge"):
        sides, operators = sides[::-1], tuple(_FLIPPED[operator] for operator in reversed(operators))
    if len(sides) == 3 and _VARIABLE.fullmatch(sides[1]):
        return sides[1], _bounds(sides[0], sides[2], operators[0] == "\\le", operators[1] == "\\le")
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[0]):
        return sides[0], _bounds("-\\infty", sides[1], False, operators[0] == "\\le")
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[1]):
        return sides[1], _bounds(sides[0], "\\infty", operators[0] == "\\le", False)
    return None


def _bounds(low: str, high: str, closed_low: bool, closed_high: bool) -> Group:
    items = (parse_answer(low), parse_answer(high))
    return Group("[" if closed_low and closed_high else "(", items, (closed_low, closed_high))


def _is_multiple(gold: Relation, answer: Relation) -> bool:
    """Return whether one inequality is a multiple of the other; for example, 2x < 6 is a multiple of x < 3."""
    if len(gold.operators) != 1 or len(answer.operators) != 1:
        return False
    a, b, c, d = (parse_value(side) for side in (*gold.sides, *answer.sides))
    if a is None or b is None or c is None or d is None or not (a - b).variables():
        return False
    ratio = (a - b).ratio(c - d)
    size = None if ratio is None else ratio.decimal()
    if not size:
        return False
    return answer.operators[0] == (
        gold.operators[0] if size > 0 else _FLIPPED.get(gold.operators[0], gold.operators[0])
    )


def _to_latex(relation: Relation) -> str:
    operators = [*relation.operators, ""]
    return " ".join(f"{side} {operator}" for side, operator in zip(relation.sides, operators, strict=True))


def _in_radians(text: str) -> str:
    """Convert the degrees in an expression such as cos 60° to radians."""
    if "\u00b0" not in text:
        return text
    return re.sub(r"(\d+(?:\.\d+)?)\s*\u00b0", r"(\\frac{\1\\pi}{180})", text)


def _is_name(side: str) -> bool:
    """Return whether the left side of an equation is a name (x, f(2), x+y, Area) and not a term such as 2x."""
    bare = re.sub(r"_(?:\{[^{}]*\}|\w)", "", side)
    bare = re.sub(r"(?<=[A-Za-z}])\s*\([^()]*\)", "", bare)
    bare = re.sub(r"\\text\s*\{[^{}]*\}", "x", bare)
    return re.search(r"[A-Za-z]", bare) is not None and re.search(r"\d", bare) is None


def _bounded_value(text: str) -> tuple[Value | None, bool]:
    """Return (value, False), or (None, True) if the value is too large, or (None, False) if it is unsupported."""
    try:
        return parse_value(text), False
    except TooLarge:
        return None, True

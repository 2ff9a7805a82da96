r"""Parse the structure of a mathematical answer: lists, sets, intervals, matrices, relations and leaves.

`normalize` removes formatting that does not change the meaning (dollar signs, \left, \boxed, thin spaces, bold);
`parse_answer` finds the structure. Both accept any text. Leaves contain unparsed text; `expression_parser` or the
symbolic pool parses it later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from palestra.grading.exact import TooLarge
from palestra.grading.expression_parser import parse_value
from palestra.grading.symbols import CHARACTERS, COMMANDS

MAX_ITEMS = 200
MAX_NESTING = 20

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FORMATTING = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|displaystyle|textstyle|limits)"
    r"(?![A-Za-z])\s*\.?|\\!|\\phantom\{[^{}]*\}|\\label\{[^{}]*\}|\\(?:text)?color\s*\{[^{}]*\}"
    r"|\\(?:checkmark|blacksquare)(?![A-Za-z])"
)
_SPACES = re.compile(
    r"(?<!\\)\\(?:[,;:> ]|quad(?![A-Za-z])|qquad(?![A-Za-z])|thinspace(?![A-Za-z])|enspace(?![A-Za-z]))|~|\s+"
)
_FONT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|emph|underline|mathrm|mathbf|mathit|mathsf|"
    r"mathtt|mathnormal|boldsymbol|bm|mbox|hbox|operatorname\*?)"
    r"\s*(?=\{)"
)
_RENAME = re.compile(rf"\\({'|'.join(COMMANDS)})(?![A-Za-z])")
_WRAPPERS = (
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("**", "**"),
    ("`", "`"),
    ("<answer>", "</answer>"),
)
_LABEL = r"(?:the\s+)?(?:final\s+)?answer\s*[*_]{0,2}(?:is\s*:?|:|=)"
_PREFIX = re.compile(
    rf"(?:(?:[*_]{{1,2}}(?=[^*_]*[*_]{{1,2}}\s+\S))?{_LABEL}(?:[*_]{{1,2}}(?=\s))?"  # Answer: 5, or **Answer:** 5
    rf"|\\text\s*\{{\s*{_LABEL}\s*\}}|\\approx(?![A-Za-z])|="
    r"|(?:approximately|about)(?=\s+[-$\d.\\])|\\text\s*\{\s*(?:approximately|about)\s*\})\s*",
    re.I,
)
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))")
_TEMPERATURE = re.compile(r"°\s*\\text\s*\{\s*([CF])\s*\}")
_LETTER = re.compile(r"\\text\s*\{\s*([ie])\s*\}|(?<=\+)\s*\\text\s*\{\s*(C)\s*\}")  # constants in roman type
_UNIT_POWER = re.compile(r"(\\text\{[^{}]*)\^\{(-?\d)\}(?=[^{}]*\})")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED = re.compile(r"(?<![\d.])(\d{1,3})((?: \d{3})+)(?![\d.])")
_MATRIX = re.compile(r"\\begin\{([pbBvV]?matrix|smallmatrix|array)\}(?:\{[lcr|\s]*\})?")
_TRANSPOSED = re.compile(
    r"\s*\^\s*(?:\{\s*)?(?:T|\\top|\\intercal|\\text\s*\{\s*T\s*\}|\\mathsf\s*T)(?![A-Za-z])\s*\}?\s*$"
)
_AND_OR = re.compile(
    r"\s*(?:\\text\{\s*(?:,\s*)?(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:vee|lor)(?![A-Za-z]))\s*"
)
_RELATION = re.compile(
    r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|\\ne(?![A-Za-z])|\\equiv(?![A-Za-z])|<=|>=|!=|[=<>]|\\approx(?![A-Za-z])"
)
_OPERATOR = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne"}
_IN = re.compile(r"^\s*\(?[A-Za-z](?:_\{?\w\}?)?\)?\s*\\in(?![A-Za-z])\s*")
_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single expression or plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Several parts, enclosed in "(", "[" or "{", without brackets, or as a ratio ("|").

    For an interval, `closed` contains one flag per endpoint, which is True if the interval includes that endpoint.
    """

    bracket: Literal["(", "[", "{", "", "|"]
    items: tuple[Node, ...]
    closed: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class Union:
    """A union of sets or intervals."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix, as rows of entries."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of equations or inequalities, such as 0 < x <= 1, stored as its sides and the operators between them."""

    sides: tuple[str, ...]
    operators: tuple[str, ...]


Node = Leaf | Group | Union | Matrix | Relation


def normalize(text: str) -> str:
    """Remove formatting that does not change the meaning, and replace symbols with their canonical forms."""
    text = _CONTROL.sub(" ", text.translate(CHARACTERS))
    text = _unwrap(text)
    text = _FORMATTING.sub("", text)
    text = _FONT.sub(r"\\text", text)
    text = _RENAME.sub(lambda match: COMMANDS[match[1]], text)
    text = text.replace("{,}", ",").replace("\\%", "%").replace("\\$", "$").replace("\\#", "#").replace("\\&", "&")
    if "\\text" in text:
        text = _LETTER.sub(lambda match: match[1] or match[2], text)
        text = _UNIT_POWER.sub(r"\1^\2", text)
    text = _TEMPERATURE.sub(r"°\1", _DEGREES.sub("°", text))
    text = _SPACES.sub(" ", text)
    return _unwrap(text)


def _unwrap(text: str) -> str:
    """Remove enclosing dollar signs, boxes and asterisks, final periods and "the answer is"."""
    for _ in range(8):
        before = text
        text = text.strip()
        if text.endswith((".", ",", ";", "\\\\")) and not text.endswith(("...", "\\,", "\\;")):
            text = text[: -2 if text.endswith("\\") else -1].rstrip()
        prefix = _PREFIX.match(text)
        if prefix is not None and prefix.end() < len(text):
            text = text[prefix.end() :]
        for opening, closing in _WRAPPERS:
            inner = text[len(opening) : -len(closing)]
            encloses = len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing)
            if encloses and opening not in inner and closing not in inner:
                text = inner
        for opening in ("\\boxed{", "\\fbox{", "\\text{", "\\mathrm{", "{"):
            if text.startswith(opening) and text.endswith("}") and closes_at(text, len(opening) - 1) == len(text) - 1:
                if opening != "{" or "," not in text:  # otherwise the braces may denote a set
                    text = text[len(opening) : -1]
                break
        if text == before:
            break
    return text


def closes_at(text: str, start: int) -> int:
    """Return the position of the brace that closes the brace at `start`, or -1 if there is none."""
    depth = 0
    for match in re.compile(r"\\.|[{}]", re.S).finditer(text, start):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def parse_answer(text: str, depth: int = 0) -> Node:
    """Parse the structure of a normalized text."""
    if depth > MAX_NESTING:
        raise TooLarge("lists are nested too deeply")
    text = text.strip()
    text = _IN.sub("", text)
    if text.replace(" ", "") in ("\\emptyset", "\\{\\}", "\\{\\emptyset\\}"):
        return Group("{", ())
    if text.replace(" ", "") in ("\\mathbb{R}", "(-\\infty,\\infty)", "(-\\infty,+\\infty)"):
        return Group("(", (Leaf("-\\infty"), Leaf("\\infty")))
    matrix = _matrix(text, depth)
    if matrix is not None:
        return matrix
    unions = _split(text, r"\cup")
    if len(unions) > 1:
        return Union(tuple(parse_answer(part, depth + 1) for part in unions))
    compact = _SPACED.sub(lambda m: m[1] + m[2].replace(" ", ""), text)
    pieces = _split_list(compact)
    if len(pieces) > 1:
        return Group("", tuple(node for piece in pieces for node in _expand_plus_minus(piece, depth)))
    if _has_relation(compact):
        parts = _split_relation(compact)
        if len(parts.sides) > 1 and all(parts.sides):
            return parts
    group = _group(compact, depth)
    if group is not None:
        return group
    alternatives = _expand_plus_minus(compact, depth) if "\\pm" in compact or "\\mp" in compact else ()
    if len(alternatives) > 1:
        return Group("", tuple(alternatives))
    ratio = compact.split(":")
    if 2 <= len(ratio) <= 6 and all(re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", part) for part in ratio):
        return Group("|", tuple(Leaf(part.strip()) for part in ratio))
    return Leaf(ungrouped(compact).strip())


def ungrouped(text: str) -> str:
    """Remove the commas between groups of digits, as in 1,000."""
    return _GROUPED.sub(lambda match: match[0].replace(",", ""), text)


def _split_list(text: str) -> list[str]:
    """Split a list without brackets at commas, semicolons, "and" and "or"."""
    if not re.search(r"[,;]|and|or|\\vee", text):
        return [text]
    pieces = [piece for part in _split(text, _AND_OR) for piece in _split(part, ";")]
    items = []
    for piece in pieces:
        items += _split(ungrouped(piece), ",")
    return [item.strip() for item in items if item.strip()] or [text]


def split_commas(text: str) -> list[str]:
    """Split at all commas, including those between digits."""
    return [piece.strip() for piece in _split(text, ",")]


def _expand_plus_minus(text: str, depth: int) -> list[Node]:
    r"""Return the parsed text, or both of its alternatives if it contains \pm."""
    if "\\pm" not in text and "\\mp" not in text:
        return [parse_answer(text, depth + 1)]
    upper = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
    lower = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
    return [parse_answer(upper, depth + 1), parse_answer(lower, depth + 1)]


_BRACKETS = re.compile(r"\\[{}]|\\begin\{|\\end\{|\\langle(?![A-Za-z])|\\rangle(?![A-Za-z])|[()\[\]{}]")
_OPENS = frozenset(["(", "[", "{", "\\{", "\\begin{", "\\langle"])


def _top_level_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans (start, end) of text outside all brackets; a closing bracket may have another shape."""
    depth, at, spans = 0, 0, []
    for bracket in _BRACKETS.finditer(text):
        if bracket[0] in _OPENS:
            if depth == 0:
                spans.append((at, bracket.start()))
            depth += 1
        else:
            depth = max(0, depth - 1)
            if depth == 0:
                at = bracket.end()
    if depth == 0:
        spans.append((at, len(text)))
    return spans


def _split(text: str, separator: str | re.Pattern[str]) -> list[str]:
    """Split at separators outside brackets."""
    if isinstance(separator, str):
        if separator not in text:
            return [text]
        pattern = re.compile(re.escape(separator) + (r"(?![A-Za-z])" if separator[0] == "\\" else ""))
    else:
        pattern = separator
    spans = _top_level_spans(text)
    cuts = []
    for match in pattern.finditer(text):
        if match.end() > match.start() and any(start <= match.start() < end for start, end in spans):
            cuts.append(match.span())
            if len(cuts) > MAX_ITEMS:
                raise TooLarge(f"a list has more than {MAX_ITEMS} parts")
    parts, at = [], 0
    for start, end in cuts:
        parts.append(text[at:start])
        at = end
    return [*parts, text[at:]]


def _has_relation(text: str) -> bool:
    return _RELATION.search(text) is not None


def _split_relation(text: str) -> Relation:
    spans = _top_level_spans(text)
    sides, operators, at = [], [], 0
    for match in _RELATION.finditer(text):
        if any(start <= match.start() < end for start, end in spans):
            sides.append(text[at : match.start()].strip())
            operators.append(_OPERATOR.get(match[0], match[0]))
            at = match.end()
            if len(operators) > 10:
                raise TooLarge("a chain has more than 10 relations")
    return Relation((*sides, text[at:].strip()), tuple(operators))


def _group(text: str, depth: int) -> Node | None:
    """Parse the text if it is a single list in brackets; otherwise return None."""
    match = re.match(r"\\\{|\\langle(?![A-Za-z])|[(\[{]", text)
    if match is None:
        return None
    opening = match[0]
    closing = next((end for end in ("\\}", "\\rangle", ")", "]", "}") if text.endswith(end)), "")
    if not closing or (opening in "([") != (closing in ")]") or len(text) < len(opening) + len(closing):
        return None
    if opening not in ("(", "[") and _CLOSING[opening] != closing:
        return None
    inner = text[len(opening) : -len(closing)]
    if _top_level_spans(inner) == [] or not _balanced(inner):
        return None
    if opening == "{" and "," not in inner:
        return None
    set_builder = _split(inner, "|")
    if opening in ("\\{", "{") and len(set_builder) == 2 and _has_relation(set_builder[1]):
        return parse_answer(set_builder[1], depth + 1)
    pieces = [piece for part in _split(inner, ";") for piece in _split(part, ",")]
    if len(pieces) == 1 and opening in ("(", "["):
        return None if opening == "(" or not pieces[0].strip().startswith(("(", "[")) else _list(pieces, depth)
    if any(not piece.strip() for piece in pieces):
        return None
    items = tuple(node for piece in pieces for node in _expand_plus_minus(piece, depth))
    if opening in ("(", "["):
        ends = (opening == "[", closing == "]")
        if ends[0] != ends[1] and len(items) != 2:
            return None
        return Group("[" if all(ends) else "(", items, ends)
    return Group("(" if opening == "\\langle" else "{", items)


def _list(pieces: list[str], depth: int) -> Group:
    return Group("[", tuple(parse_answer(piece, depth + 1) for piece in pieces), (True, True))


def _balanced(text: str) -> bool:
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket[0] in _OPENS else -1
        if depth < 0:
            return False
    return depth == 0


def _matrix(text: str, depth: int) -> Matrix | None:
    transposed = _TRANSPOSED.search(text) if "^" in text else None
    if transposed is not None and text[0] in "([\\-0123456789":
        inner = parse_answer(text[: transposed.start()], depth + 1)
        return _transpose(inner)
    match = _MATRIX.search(text) if "matrix}" in text or "{array}" in text else None
    if match is None or match[1].startswith(("v", "V")):
        return None
    if match.start() == 1 and (text[0], text[-1]) in (("[", "]"), ("(", ")")):
        return _matrix(text[1:-1].strip(), depth + 1)  # \\left[\\begin{array}...\\end{array}\\right]
    if match.start():
        return _scaled(text[: match.start()], _matrix(text[match.start() :], depth + 1))
    ending = f"\\end{{{match[1]}}}"
    if not text.endswith(ending) or text.count("\\begin{") != 1:
        return None
    body = text[match.end() : -len(ending)].strip()
    body = body.removesuffix("\\\\").replace("\\hline", "")
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?|\\cr(?![A-Za-z])", body) if row.strip()]
    if len(rows) > MAX_ITEMS or any(row.count("&") > MAX_ITEMS for row in rows):
        raise TooLarge(f"a matrix has more than {MAX_ITEMS} rows or columns")
    return Matrix(tuple(tuple(parse_answer(cell, depth + 1) for cell in row.split("&")) for row in rows))


def _transpose(node: Node) -> Matrix | None:
    """Return the transpose of a matrix, or of a list treated as a row; return None for other nodes."""
    if isinstance(node, Group) and node.bracket in ("(", "["):
        rows: tuple[tuple[Node, ...], ...] = (node.items,)
        if all(isinstance(item, Group) and item.bracket in ("(", "[") for item in node.items):
            rows = tuple(item.items for item in node.items if isinstance(item, Group))
    elif isinstance(node, Matrix):
        rows = node.rows
    else:
        return None
    return Matrix(tuple(zip(*rows, strict=True))) if len({len(row) for row in rows}) == 1 else None


def _scaled(factor: str, matrix: Matrix | None) -> Matrix | None:
    """Multiply a matrix by the number or sign before it; return None if this is not possible."""
    factor = factor.strip().removesuffix("*").strip()
    factor = {"-": "-1", "+": "1"}.get(factor, factor)
    if matrix is None or parse_value(factor) is None:
        return None
    if not all(isinstance(cell, Leaf) for row in matrix.rows for cell in row):
        return None
    return Matrix(
        tuple(tuple(Leaf(f"({factor})*({cell.text})") for cell in row if isinstance(cell, Leaf)) for row in matrix.rows)
    )

r"""An answer as a model or a data set writes it -> its parts: lists, sets, intervals, matrices, relations, leaves.

`cleaned` takes away what does not change the meaning (dollars, \left, \boxed, thin spaces, bold); `read` finds the
structure. Both are total; leaves stay text, for `expressions` or the symbolic workers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from palestra.grading.exact import TooLarge
from palestra.grading.symbols import RENAMED, TRANSLATED

MAX_ITEMS = 200
MAX_NESTING = 20

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DROPPED = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|displaystyle|textstyle|limits)"
    r"(?![A-Za-z])\s*\.?|\\!|\\phantom\{[^{}]*\}|\\label\{[^{}]*\}"
)
_SPACES = re.compile(
    r"(?<!\\)\\(?:[,;:> ]|quad(?![A-Za-z])|qquad(?![A-Za-z])|thinspace(?![A-Za-z])|enspace(?![A-Za-z]))|~|\s+"
)
_FONT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|hbox|operatorname\*?)"
    r"\s*(?=\{)"
)
_RENAME = re.compile(rf"\\({'|'.join(RENAMED)})(?![A-Za-z])")
_WRAPPED = (
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("**", "**"),
    ("`", "`"),
    ("<answer>", "</answer>"),
)
_LEAD = re.compile(r"(?:(?:the\s+)?(?:final\s+)?answer\s*(?:is\s*:?|:|=)|\\approx(?![A-Za-z])|=)\s*", re.I)
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED = re.compile(r"(?<![\d.])(\d{1,3})((?: \d{3})+)(?![\d.])")
_MATRIX = re.compile(r"\\begin\{([pbBvV]?matrix|smallmatrix|array)\}(?:\{[lcr|\s]*\})?")
_AND_OR = re.compile(
    r"\s*(?:\\text\{\s*(?:,\s*)?(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:vee|lor)(?![A-Za-z]))\s*"
)
_RELATION = re.compile(
    r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|\\ne(?![A-Za-z])|\\equiv(?![A-Za-z])|<=|>=|!=|[=<>]|\\approx(?![A-Za-z])"
)
_SIGN = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne"}
_IN = re.compile(r"^\s*\(?[A-Za-z](?:_\{?\w\}?)?\)?\s*\\in(?![A-Za-z])\s*")
_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One expression, or words."""

    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Several parts in brackets: "(", "[", "{" or none; `closed`: which ends are square, for intervals."""

    bracket: Literal["(", "[", "{", "", "|"]
    items: tuple[Node, ...]
    closed: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class Union:
    """Parts joined by a union sign."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of leaves."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain: one side more than signs."""

    sides: tuple[str, ...]
    signs: tuple[str, ...]


Node = Leaf | Group | Union | Matrix | Relation


def cleaned(text: str) -> str:
    """The same, without what carries no meaning."""
    text = _CONTROL.sub(" ", text.translate(TRANSLATED))
    text = _unwrapped(text)
    text = _DROPPED.sub("", text)
    text = _FONT.sub(r"\\text", text)
    text = _RENAME.sub(lambda found: RENAMED[found[1]], text)
    text = text.replace("{,}", ",").replace("\\%", "%").replace("\\$", "$").replace("\\#", "#").replace("\\&", "&")
    text = _DEGREES.sub("°", text)
    text = _SPACES.sub(" ", text)
    return _unwrapped(text)


def _unwrapped(text: str) -> str:
    """Without dollars, boxes, asterisks, full stops around it."""
    for _ in range(8):
        before = text
        text = text.strip()
        if text.endswith((".", ",", ";", "\\\\")) and not text.endswith(("...", "\\,", "\\;")):
            text = text[: -2 if text.endswith("\\") else -1].rstrip()
        lead = _LEAD.match(text)
        if lead is not None and lead.end() < len(text):
            text = text[lead.end() :]
        for opening, closing in _WRAPPED:
            inner = text[len(opening) : -len(closing)]
            whole = len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing)
            if whole and opening not in inner and closing not in inner:
                text = inner
        for opening in ("\\boxed{", "\\fbox{", "\\text{", "\\mathrm{", "{"):
            if text.startswith(opening) and text.endswith("}") and closes_at(text, len(opening) - 1) == len(text) - 1:
                if opening != "{" or "," not in text:  # a set, in a hurry
                    text = text[len(opening) : -1]
                break
        if text == before:
            break
    return text


def closes_at(text: str, start: int) -> int:
    """Where the brace that opens at `start` closes, -1: nowhere."""
    depth = 0
    for found in re.compile(r"\\.|[{}]", re.S).finditer(text, start):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if depth == 0:
                return found.start()
    return -1


def read(text: str, depth: int = 0) -> Node:
    """The structure of a cleaned text."""
    if depth > MAX_NESTING:
        raise TooLarge("lists nested too deeply")
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
        return Union(tuple(read(part, depth + 1) for part in unions))
    bare = _SPACED.sub(lambda m: m[1] + m[2].replace(" ", ""), text)
    pieces = _listed(bare)
    if len(pieces) > 1:
        return Group("", tuple(node for piece in pieces for node in _spread(piece, depth)))
    if _relations(bare):
        parts = _split_relation(bare)
        if len(parts.sides) > 1 and all(parts.sides):
            return parts
    group = _group(bare, depth)
    if group is not None:
        return group
    spread = _spread(bare, depth) if "\\pm" in bare or "\\mp" in bare else ()
    if len(spread) > 1:
        return Group("", tuple(spread))
    ratio = bare.split(":")
    if 2 <= len(ratio) <= 6 and all(re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", part) for part in ratio):
        return Group("|", tuple(Leaf(part.strip()) for part in ratio))
    return Leaf(ungrouped(bare).strip())


def ungrouped(text: str) -> str:
    """Without commas that group digits."""
    return _GROUPED.sub(lambda found: found[0].replace(",", ""), text)


def _listed(text: str) -> list[str]:
    """The parts of a list without brackets: by commas, semicolons, "and", "or"."""
    if not re.search(r"[,;]|and|or|\\vee", text):
        return [text]
    pieces = [piece for part in _split(text, _AND_OR) for piece in _split(part, ";")]
    found = []
    for piece in pieces:
        found += _split(ungrouped(piece), ",")
    return [piece.strip() for piece in found if piece.strip()] or [text]


def split_commas(text: str) -> list[str]:
    """As if no comma grouped digits."""
    return [piece.strip() for piece in _split(text, ",")]


def _spread(text: str, depth: int) -> list[Node]:
    r"""A part, or two of them where it has a \pm."""
    if "\\pm" not in text and "\\mp" not in text:
        return [read(text, depth + 1)]
    upper = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
    lower = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
    return [read(upper, depth + 1), read(lower, depth + 1)]


_BRACKETS = re.compile(r"\\[{}]|\\begin\{|\\end\{|\\langle(?![A-Za-z])|\\rangle(?![A-Za-z])|[()\[\]{}]")
_OPENS = frozenset(["(", "[", "{", "\\{", "\\begin{", "\\langle"])


def _levels(text: str) -> list[tuple[int, int]]:
    """Stretches of the text outside of all brackets, as (start, end). Half-open intervals count as closed brackets."""
    depth, at, found = 0, 0, []
    for bracket in _BRACKETS.finditer(text):
        sign = bracket[0]
        if sign in _OPENS:
            if depth == 0:
                found.append((at, bracket.start()))
            depth += 1
        else:
            depth = max(0, depth - 1)
            if depth == 0:
                at = bracket.end()
    if depth == 0:
        found.append((at, len(text)))
    return found


def _split(text: str, separator: str | re.Pattern[str]) -> list[str]:
    """The parts between separators that stand outside of brackets."""
    if isinstance(separator, str):
        if separator not in text:
            return [text]
        pattern = re.compile(re.escape(separator) + (r"(?![A-Za-z])" if separator[0] == "\\" else ""))
    else:
        pattern = separator
    levels = _levels(text)
    cuts = []
    for found in pattern.finditer(text):
        if found.end() > found.start() and any(start <= found.start() < end for start, end in levels):
            cuts.append(found.span())
            if len(cuts) > MAX_ITEMS:
                raise TooLarge(f"a list of more than {MAX_ITEMS} parts")
    parts, at = [], 0
    for start, end in cuts:
        parts.append(text[at:start])
        at = end
    return [*parts, text[at:]]


def _relations(text: str) -> bool:
    return _RELATION.search(text) is not None


def _split_relation(text: str) -> Relation:
    levels = _levels(text)
    sides, signs, at = [], [], 0
    for found in _RELATION.finditer(text):
        if any(start <= found.start() < end for start, end in levels):
            sides.append(text[at : found.start()].strip())
            signs.append(_SIGN.get(found[0], found[0]))
            at = found.end()
            if len(signs) > 10:
                raise TooLarge("a chain of many relations")
    return Relation((*sides, text[at:].strip()), tuple(signs))


def _group(text: str, depth: int) -> Node | None:
    """A bracketed list, where the whole text is one."""
    found = re.match(r"\\\{|\\langle(?![A-Za-z])|[(\[{]", text)
    if found is None:
        return None
    opening = found[0]
    closing = next((sign for sign in ("\\}", "\\rangle", ")", "]", "}") if text.endswith(sign)), "")
    if not closing or (opening in "([") != (closing in ")]") or len(text) < len(opening) + len(closing):
        return None
    if opening not in ("(", "[") and _CLOSING[opening] != closing:
        return None
    inner = text[len(opening) : -len(closing)]
    if _levels(inner) == [] or not _balanced(inner):
        return None
    if opening == "{" and "," not in inner:
        return None
    set_builder = _split(inner, "|")
    if opening in ("\\{", "{") and len(set_builder) == 2 and _relations(set_builder[1]):
        return read(set_builder[1], depth + 1)
    pieces = [piece for part in _split(inner, ";") for piece in _split(part, ",")]
    if len(pieces) == 1 and opening in ("(", "["):
        return None if opening == "(" or not pieces[0].strip().startswith(("(", "[")) else _list(pieces, depth)
    if any(not piece.strip() for piece in pieces):
        return None
    items = tuple(node for piece in pieces for node in _spread(piece, depth))
    if opening in ("(", "["):
        ends = (opening == "[", closing == "]")
        if ends[0] != ends[1] and len(items) != 2:
            return None
        return Group("[" if all(ends) else "(", items, ends)
    return Group("(" if opening == "\\langle" else "{", items)


def _list(pieces: list[str], depth: int) -> Group:
    return Group("[", tuple(read(piece, depth + 1) for piece in pieces), (True, True))


def _balanced(text: str) -> bool:
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket[0] in _OPENS else -1
        if depth < 0:
            return False
    return depth == 0


def _matrix(text: str, depth: int) -> Matrix | None:
    found = _MATRIX.match(text)
    if found is None or found[1].startswith(("v", "V")):
        return None
    ending = f"\\end{{{found[1]}}}"
    if not text.endswith(ending) or text.count("\\begin{") != 1:
        return None
    body = text[found.end() : -len(ending)].strip()
    body = body.removesuffix("\\\\").replace("\\hline", "")
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?|\\cr(?![A-Za-z])", body) if row.strip()]
    if len(rows) > MAX_ITEMS or any(row.count("&") > MAX_ITEMS for row in rows):
        raise TooLarge("a matrix of hundreds of rows")
    return Matrix(tuple(tuple(read(cell, depth + 1) for cell in row.split("&")) for row in rows))

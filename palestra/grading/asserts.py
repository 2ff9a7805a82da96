"""`assert` -> what the submission has to compute, and the judgement over it, which needs no submission.

`assert max(f(2)) == 3` becomes the value of `f(2)`, computed beside the submission, and `max(V[0]) == 3`, decided
elsewhere: neither the caller's frame nor an object that says it equals everything can show or fake the result.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import Any

VALUES = "_palestra_values"
_BUILTIN = frozenset(dir(builtins))
_CONVERSIONS = frozenset(["bool", "dict", "float", "int", "len", "list", "repr", "set", "sorted", "str", "tuple"])
_NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """An assertion in two halves."""

    values: tuple[str, ...]  # expressions over the submission's names
    judgement: str  # an expression over VALUES, the built-in names and what the set-up imports
    expected: Any = _NOTHING  # where the judgement is `V[0] == expected`: the data itself
    setup: str  # the imports of the set-up
    own: bool  # the submission's names stand on both sides of a comparison: what it returns may be of its own classes

    @property
    def is_data(self) -> bool:
        return self.expected is not _NOTHING


def parted(source: str, setup: str) -> Parted | None:
    """None where the two cannot be told apart: several statements, or names of the submission in the judgement."""
    tree = ast.parse(source)
    before = ast.parse(setup)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    imports = [node for node in before.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}
    if "*" in imported:
        return None
    known = _BUILTIN | imported
    calls = _Calls(known)
    judgement = calls.visit(tree.body[0].test)
    left = {node.id for node in ast.walk(judgement) if isinstance(node, ast.Name)}
    bound = {
        node.id for node in ast.walk(judgement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {node.arg for node in ast.walk(judgement) if isinstance(node, ast.arg)}
    if not calls.found or not left <= known | bound | {VALUES}:
        return None
    return Parted(
        values=tuple(calls.found),
        judgement=ast.unparse(judgement),
        expected=_expected(judgement),
        own=_compares_values(judgement),
        setup="\n".join(ast.unparse(node) for node in imports),
    )


class _Calls(ast.NodeTransformer):
    """Replaces the outermost calls of unknown names by VALUES[i]."""

    def __init__(self, known: frozenset[str] | set[str]) -> None:
        self._known = known
        self._scopes: list[set[str]] = []
        self.found: list[str] = []

    def _chain(self, node: ast.expr) -> ast.AST:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        local = set().union(*self._scopes) if self._scopes else set()
        root = _root(node)
        if isinstance(root, ast.Name) and root.id not in self._known and not names & local:
            self.found.append(ast.unparse(node))
            return ast.parse(f"{VALUES}[{len(self.found) - 1}]", mode="eval").body
        return self.generic_visit(node)

    visit_Call = visit_Attribute = visit_Subscript = visit_Name = _chain  # noqa: N815  # ast's naming

    def _scoped(self, node: ast.AST) -> ast.AST:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._scopes.append(stored | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)})
        try:
            return self.generic_visit(node)
        finally:
            self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = _scoped  # noqa: N815


def _root(node: ast.expr) -> ast.expr:
    """What a chain of calls, attributes and subscripts begins with; seen through list(...), str(...) and the like."""
    while True:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _CONVERSIONS:
                node = inner
            case ast.Call():
                node = node.func
            case ast.Attribute() | ast.Subscript():
                node = node.value
            case _:
                return node


def _compares_values(judgement: ast.expr) -> bool:
    for node in ast.walk(judgement):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if sum(VALUES in ast.unparse(side) for side in sides) > 1:
                return True
    return False


def _expected(judgement: ast.expr) -> Any:
    if not (
        isinstance(judgement, ast.Compare)
        and len(judgement.ops) == 1
        and isinstance(judgement.ops[0], ast.Eq)
        and ast.unparse(judgement.left) == f"{VALUES}[0]"
    ):
        return _NOTHING
    try:
        return ast.literal_eval(judgement.comparators[0])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _NOTHING

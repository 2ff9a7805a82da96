"""Split an `assert` into values that the submission computes, and a check that runs without the submission.

`assert max(f(2)) == 3` becomes the value `f(2)`, which is computed in the submission's process, and the check
`max(V[0]) == 3`, which is evaluated in another process. The submission can therefore neither read the expected value
from the caller's stack frame nor return an object that compares equal to everything.

A test that cannot be split, such as a `check(candidate)` with a loop, runs as a whole in a process without the
submission, and calls the submission's functions in another process (`remote_functions`).
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import Any

VALUES = "_palestra_values"
_BUILTIN = frozenset(dir(builtins))
_CONVERSIONS = frozenset(["bool", "dict", "float", "int", "len", "list", "repr", "set", "sorted", "str", "tuple"])
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAssert:
    """An assertion split into values and a check."""

    values: tuple[str, ...]  # expressions that use names defined by the submission
    check: str  # expression that uses only VALUES, built-in names and the imports in `setup`
    expected: Any = _MISSING  # the expected value, if the check has the form `V[0] == expected`
    setup: str  # the imports among the setup statements
    compares_values: bool  # True if the submission computes both sides of a comparison
    plain_setup: bool  # True if the setup statements are all imports

    @property
    def is_data(self) -> bool:
        return self.expected is not _MISSING


def split_assert(source: str, setup: str) -> SplitAssert | None:
    """Split an assertion; return None if it has several statements or its check needs the submission's names."""
    tree = ast.parse(source)
    setup_tree = ast.parse(setup)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    imports = [node for node in setup_tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}
    if "*" in imported:
        return None
    available = _BUILTIN | imported
    calls = _CallReplacer(available)
    check = calls.visit(tree.body[0].test)
    remaining = {node.id for node in ast.walk(check) if isinstance(node, ast.Name)}
    bound = {node.id for node in ast.walk(check) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} | {
        node.arg for node in ast.walk(check) if isinstance(node, ast.arg)
    }
    if not calls.expressions or not remaining <= available | bound | {VALUES}:
        return None
    return SplitAssert(
        values=tuple(calls.expressions),
        check=ast.unparse(check),
        expected=_expected(check),
        compares_values=_compares_values(check),
        setup="\n".join(ast.unparse(node) for node in imports),
        plain_setup=len(imports) == len(setup_tree.body),
    )


def uses_classes(source: str, setup: str) -> bool:
    """Return whether a test uses the submission's classes, except LeetCode's `Solution`, which only holds functions.

    The result of such a test may depend on how these classes compare objects.
    """
    return any(map(_is_class, _names_of_submission(ast.parse(f"{setup}\n{source}")) - {"Solution"}))


def remote_functions(source: str, setup: str) -> list[str] | None:
    """Return the submission's functions that a test calls; None if it may use the submission in another way.

    This is the case if the test uses the submission's classes, or attributes of its functions.
    """
    tree = ast.parse(f"{setup}\n{source}")
    functions = _names_of_submission(tree)
    attributes = {
        node.value.id for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    if "*" in functions or not functions or functions & attributes or any(map(_is_class, functions)):
        return None
    return sorted(functions)


def _is_class(name: str) -> bool:
    """Return whether a name is capitalized like a class name."""
    return name.lstrip("_")[:1].isupper()


def _names_of_submission(tree: ast.Module) -> set[str]:
    """Return the names that a test uses but does not define; include "*" if it imports all names from a module."""
    used, bound = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name="*"):
                used.add("*")
            case ast.alias():
                bound.add((node.asname or node.name).split(".")[0])
    return used - bound - _BUILTIN


class _CallReplacer(ast.NodeTransformer):
    """Replace the outermost calls to names that are not available to the check with VALUES[i]."""

    def __init__(self, available: frozenset[str] | set[str]) -> None:
        self._available = available
        self._scopes: list[set[str]] = []
        self.expressions: list[str] = []

    def _replace(self, node: ast.expr) -> ast.AST:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        local = set().union(*self._scopes) if self._scopes else set()
        root = _root(node)
        if isinstance(root, ast.Name) and root.id not in self._available and not names & local:
            self.expressions.append(ast.unparse(node))
            return ast.parse(f"{VALUES}[{len(self.expressions) - 1}]", mode="eval").body
        return self.generic_visit(node)

    visit_Call = visit_Attribute = visit_Subscript = visit_Name = _replace  # noqa: N815  # names required by ast

    def _scoped(self, node: ast.AST) -> ast.AST:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._scopes.append(stored | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)})
        try:
            return self.generic_visit(node)
        finally:
            self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = _scoped  # noqa: N815


def _root(node: ast.expr) -> ast.expr:
    """Return the first expression in a chain of calls, attributes and subscripts, ignoring conversions like list()."""
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


def _compares_values(check: ast.expr) -> bool:
    for node in ast.walk(check):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if sum(VALUES in ast.unparse(side) for side in sides) > 1:
                return True
    return False


def _expected(check: ast.expr) -> Any:
    if not (
        isinstance(check, ast.Compare)
        and len(check.ops) == 1
        and isinstance(check.ops[0], ast.Eq)
        and ast.unparse(check.left) == f"{VALUES}[0]"
    ):
        return _MISSING
    try:
        return ast.literal_eval(check.comparators[0])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _MISSING

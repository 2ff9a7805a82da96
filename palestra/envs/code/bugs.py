"""Insert bugs into a program's syntax tree, and run the result with limits on loops and sizes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from palestra.envs.code.programs import FUNCTION, Args

MAX_ITERATIONS = 5_000  # maximum number of loop iterations per input
MAX_SIZE = 10_000  # maximum number of elements in a container, or bits in an integer

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Mod: ast.FloorDiv,
    ast.FloorDiv: ast.Mod,
}
_CALLS = {"max": "min", "min": "max", "upper": "lower", "lower": "upper"}

BugSite = tuple[int, str]  # index of the node in `ast.walk` order, and the kind of bug


def parse(source: str) -> ast.Module:
    """Call `ast.parse` and retry if it raises SystemError.

    CPython 3.11 occasionally raises "AST constructor recursion depth mismatch" for a valid program.
    """
    for _ in range(9):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Return value or exception of a program for one input."""

    value: Any = None
    error: str = ""  # name of the exception, if the program raised one

    def describe(self) -> str:
        return f"raises {self.error}" if self.error else f"returns {self.value!r}"


class LimitExceeded(Exception):
    """Raised if a program runs for too many iterations or its values grow too large."""


def find_bug_sites(tree: ast.Module) -> list[BugSite]:
    """Return all places in a program where a bug can be inserted."""
    return [(number, kind) for number, node in enumerate(ast.walk(tree)) for kind in _kinds(node)]


def _kinds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        yield "comparison"
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        yield "operator"
    elif isinstance(node, ast.BoolOp):
        yield "logic"
    elif isinstance(node, ast.If):
        yield "negated"
        if node.orelse and not isinstance(node.orelse[0], ast.If):
            yield "missing else"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one"
    elif isinstance(node, ast.Name | ast.Attribute) and _called(node) in _CALLS:
        yield "wrong function"
    elif isinstance(node, ast.For | ast.While) and len(node.body) > 1:
        yield "missing line"
    elif isinstance(node, ast.FunctionDef) and _returns_after_loop(node):
        yield "early return"


def _called(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _returns_after_loop(node: ast.FunctionDef) -> bool:
    return (
        len(node.body) > 1 and isinstance(node.body[-1], ast.Return) and isinstance(node.body[-2], ast.For | ast.While)
    )


def insert_bugs(source: str, sites: Sequence[BugSite], seed: int) -> ast.Module:
    """Return the program with a bug inserted at each site; the bug at a site does not depend on the other sites."""
    tree = parse(source)
    nodes = list(ast.walk(tree))
    for number, kind in sites:
        _insert_bug(nodes[number], kind, Random(f"{seed} {number} {kind}"))
    return tree


def are_independent(tree: ast.Module, sites: Sequence[BugSite]) -> bool:
    """Return whether the bugs can be combined: no bug may remove code that another one modifies."""
    nodes = list(ast.walk(tree))
    for number, kind in sites:
        if kind in ("missing line", "missing else"):
            inside = set(map(id, ast.walk(nodes[number])))
            if any(other != number and id(nodes[other]) in inside for other, _ in sites):
                return False
    return len({number for number, _ in sites}) == len(sites)


def _insert_bug(node: Any, kind: str, rng: Random) -> None:
    if kind == "comparison":
        node.ops = [_COMPARISONS[type(node.ops[0])]()]
    elif kind == "operator":
        node.op = _OPERATORS[type(node.op)]()
    elif kind == "logic":
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif kind == "negated":
        node.test = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node.test), node.test)
    elif kind == "missing else":
        node.orelse = []
    elif kind == "off by one":
        node.value += rng.choice((-1, 1))
    elif kind == "wrong function":
        if isinstance(node, ast.Name):
            node.id = _CALLS[node.id]
        else:
            node.attr = _CALLS[node.attr]
    elif kind == "missing line":
        node.body.pop(rng.randrange(len(node.body)))
    elif kind == "early return":
        node.body[-2].body.append(node.body.pop())


def compile_limited(tree: ast.Module, *, max_iterations: int = MAX_ITERATIONS) -> Callable[[Args], Outcome]:
    """Return a function that runs the program and raises LimitExceeded if it exceeds a limit.

    This function modifies `tree`.
    """
    instrumented = _Instrumenter().visit(tree)
    space: dict[str, Any] = {}
    iterations_left = 0

    def tick() -> None:
        nonlocal iterations_left
        iterations_left -= 1
        if iterations_left < 0:
            raise LimitExceeded("too many iterations")

    def check(value: Any) -> None:
        if isinstance(value, int):
            if value.bit_length() > MAX_SIZE:
                raise LimitExceeded("number too large")
        elif isinstance(value, str | list) and len(value) > MAX_SIZE:
            raise LimitExceeded("value too long")

    exec(compile(instrumented, "<candidate>", "exec"), space)  # noqa: S102  # generated code, not an agent's code
    space["_tick"], space["_check"] = tick, check
    function = space[FUNCTION]

    def run(args: Args) -> Outcome:
        nonlocal iterations_left
        iterations_left = max_iterations
        try:
            return Outcome(value=function(*copy.deepcopy(args)))
        except LimitExceeded:
            raise
        except Exception as err:  # noqa: BLE001  # any exception is a possible outcome of a bug
            return Outcome(error=type(err).__name__)

    return run


class _Instrumenter(ast.NodeTransformer):
    """Insert a call to `_tick` into every loop body and a call to `_check` after every assignment to a name."""

    def visit_For(self, node: ast.For) -> Any:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> Any:
        return self._loop(node)

    def _loop(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, _call("_tick"))
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        return [node, *(_call("_check", name.id) for name in targets if isinstance(name, ast.Name))]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        return [node, _call("_check", node.target.id)] if isinstance(node.target, ast.Name) else [node]


def _call(function: str, *names: str) -> ast.stmt:
    location: dict[str, int] = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
    args: list[ast.expr] = [ast.Name(id=name, ctx=ast.Load(), **location) for name in names]
    called = ast.Name(id=function, ctx=ast.Load(), **location)
    return ast.Expr(value=ast.Call(func=called, args=args, keywords=[], **location), **location)

"""Bugs of known kinds, put into a program's syntax tree one at a time, and a careful way to run what comes of it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from palestra.envs.code.programs import FUNCTION, Args

FUEL = 5_000  # rounds of loops that a program with bugs may take for one input
WIDEST = 10_000  # elements or bits that its values may grow to

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

Place = tuple[int, str]  # the node's number in the order of `ast.walk`, and the kind of bug


def parsed(source: str) -> ast.Module:
    """`ast.parse`, tried again where it raises SystemError ("AST constructor recursion depth mismatch"), as CPython
    3.11 has been seen to do at a sound program."""
    for _ in range(9):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a program did with one input."""

    value: Any = None
    error: str = ""  # the exception's name, where it raised

    def shown(self) -> str:
        return f"raises {self.error}" if self.error else f"returns {self.value!r}"


class OutOfFuel(Exception):
    """A program did not come to an end, or its values grew without bounds."""


def places(tree: ast.Module) -> list[Place]:
    """Everything that can be made wrong in a program."""
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
            yield "lost else"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one"
    elif isinstance(node, ast.Name | ast.Attribute) and _called(node) in _CALLS:
        yield "wrong function"
    elif isinstance(node, ast.For | ast.While) and len(node.body) > 1:
        yield "lost line"
    elif isinstance(node, ast.FunctionDef) and _returns_after_loop(node):
        yield "early return"


def _called(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _returns_after_loop(node: ast.FunctionDef) -> bool:
    return (
        len(node.body) > 1 and isinstance(node.body[-1], ast.Return) and isinstance(node.body[-2], ast.For | ast.While)
    )


def broken(source: str, chosen: Sequence[Place], seed: int) -> ast.Module:
    """The program with a bug at each chosen place; a bug is the same alone and among others."""
    tree = parsed(source)
    nodes = list(ast.walk(tree))
    for number, kind in chosen:
        _break(nodes[number], kind, Random(f"{seed} {number} {kind}"))
    return tree


def apart(tree: ast.Module, chosen: Sequence[Place]) -> bool:
    """Whether no bug takes away the place of another."""
    nodes = list(ast.walk(tree))
    for number, kind in chosen:
        if kind in ("lost line", "lost else"):
            inside = set(map(id, ast.walk(nodes[number])))
            if any(other != number and id(nodes[other]) in inside for other, _ in chosen):
                return False
    return len({number for number, _ in chosen}) == len(chosen)


def _break(node: Any, kind: str, rng: Random) -> None:
    if kind == "comparison":
        node.ops = [_COMPARISONS[type(node.ops[0])]()]
    elif kind == "operator":
        node.op = _OPERATORS[type(node.op)]()
    elif kind == "logic":
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif kind == "negated":
        node.test = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node.test), node.test)
    elif kind == "lost else":
        node.orelse = []
    elif kind == "off by one":
        node.value += rng.choice((-1, 1))
    elif kind == "wrong function":
        if isinstance(node, ast.Name):
            node.id = _CALLS[node.id]
        else:
            node.attr = _CALLS[node.attr]
    elif kind == "lost line":
        node.body.pop(rng.randrange(len(node.body)))
    elif kind == "early return":
        node.body[-2].body.append(node.body.pop())


def careful(tree: ast.Module) -> Callable[[Args], Outcome]:
    """The program of a tree, watched: OutOfFuel where it loops without end or its values swell. Uses the tree up."""
    watched = _Watch().visit(tree)
    space: dict[str, Any] = {}
    fuel = 0

    def tick() -> None:
        nonlocal fuel
        fuel -= 1
        if fuel < 0:
            raise OutOfFuel("too many rounds")

    def check(value: Any) -> None:
        if isinstance(value, int):
            if value.bit_length() > WIDEST:
                raise OutOfFuel("too large a number")
        elif isinstance(value, str | list) and len(value) > WIDEST:
            raise OutOfFuel("too long a value")

    exec(compile(watched, "<candidate>", "exec"), space)  # noqa: S102  # our own program, with our own bugs
    space["_tick"], space["_check"] = tick, check
    function = space[FUNCTION]

    def run(args: Args) -> Outcome:
        nonlocal fuel
        fuel = FUEL
        try:
            return Outcome(value=function(*copy.deepcopy(args)))
        except OutOfFuel:
            raise
        except Exception as err:  # noqa: BLE001  # whatever a bug leads to is what it does
            return Outcome(error=type(err).__name__)

    return run


class _Watch(ast.NodeTransformer):
    """Calls `_tick` in every round of a loop and `_check` after every assignment to a name."""

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
    here: dict[str, int] = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
    args: list[ast.expr] = [ast.Name(id=name, ctx=ast.Load(), **here) for name in names]
    called = ast.Name(id=function, ctx=ast.Load(), **here)
    return ast.Expr(value=ast.Call(func=called, args=args, keywords=[], **here), **here)

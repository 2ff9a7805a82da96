"""Measure how many wrong programs the hidden tests in generated programming tasks reject.

    python benchmarks/code_mutants.py [--tasks Puzzles Algorithms] [--levels easy medium hard] [--seeds 40] [--json]

A mutant is the reference solution with one change: another comparison, operator, constant or function, a negated
condition, or a missing branch, condition or statement. A mutant that passes the hidden tests is run on many more random
inputs. If its results differ from the reference solution's, it was accepted wrongly; otherwise it counts as
equivalent and is ignored. The exit code is 1 if fewer than 95% of the non-equivalent mutants are rejected.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from palestra.envs.code.algorithms import Algorithms
from palestra.envs.code.boundaries import Hints, hidden_tests
from palestra.envs.code.bugs import LimitExceeded, compile_limited, parse
from palestra.envs.code.compose import generate_program
from palestra.envs.code.programs import compile_function
from palestra.envs.code.puzzles import Puzzles
from palestra.grading import CallTest

REQUIRED = 0.95  # share of the non-equivalent mutants that the hidden tests must reject
MAX_ITERATIONS = 100_000  # per input; a mutant that needs more is treated as exceeding the time limit
UNIFORM = Hints(numbers=tuple(range(-100, 101)), lengths=tuple(range(16)), letters="abcdefghijklmnopqrstuvwxyz")
Args = tuple[Any, ...]

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Pow: (ast.Mult,),
    ast.BitXor: (ast.BitOr,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
_FUNCTIONS = {
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
    "upper": "lower",
    "lower": "upper",
    "isdigit": "isalpha",
    "isalpha": "isdigit",
    "popleft": "pop",
}
Change = Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A generated program with its hidden tests and a function that samples further inputs."""

    source: str
    tests: Sequence[CallTest]
    sample: Callable[[Random], Args]


def assign(field: str, value: Any) -> Change:
    """Return a function that assigns `value` to an AST node's field."""
    return lambda node: setattr(node, field, value)


def put(field: str, index: int, value: ast.AST) -> Change:
    """Return a function that replaces one element of an AST node's list field."""

    def change(node: Any) -> None:
        getattr(node, field)[index] = value

    return change


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield the name of each mutation that applies to this node, and a function that applies it to a copy."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            if type(operator) in _BOUNDARY:
                yield "comparison boundary", put("ops", i, _BOUNDARY[type(operator)]())
            if type(operator) in _OPPOSITE:
                yield "comparison flip", put("ops", i, _OPPOSITE[type(operator)]())
    if isinstance(node, ast.BinOp | ast.AugAssign):
        for other in _OPERATORS.get(type(node.op), ()):
            yield "operator", assign("op", other())
    if isinstance(node, ast.BoolOp):
        yield "and / or", assign("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for i in range(len(node.values)):
            yield "missing condition", put("values", i, ast.Constant(value=isinstance(node.op, ast.And)))
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "negated condition", assign("test", ast.UnaryOp(op=ast.Not(), operand=copy.deepcopy(node.test)))
    if isinstance(node, ast.comprehension) and node.ifs:
        yield "missing condition", assign("ifs", [])
    if isinstance(node, ast.If):
        yield "missing branch", assign("body", [ast.Pass()])
        if node.orelse:
            yield "missing branch", assign("orelse", [])
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for by in (-1, 1):
            yield "off by one", assign("value", node.value + by)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) == 1:
        yield "constant", assign("value", chr(ord(node.value) + 1))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "operator", assign("op", ast.UAdd())
    if isinstance(node, ast.Name) and node.id in _FUNCTIONS:
        yield "function", assign("id", _FUNCTIONS[node.id])
    if isinstance(node, ast.Attribute) and node.attr in _FUNCTIONS:
        yield "function", assign("attr", _FUNCTIONS[node.attr])
    if isinstance(node, ast.Break | ast.Continue):
        return
    for field in ("body", "orelse"):
        statements = getattr(node, field, None)
        if isinstance(statements, list) and len(statements) > 1:
            for i, statement in enumerate(statements):
                if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
                    yield "missing statement", put(field, i, ast.Pass())


def mutants(source: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield every mutant of a program with the name of its mutation."""
    tree = parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for operator, change in changes(node):
            mutant = copy.deepcopy(tree)
            change(next(other for i, other in enumerate(ast.walk(mutant)) if i == number))
            yield operator, ast.fix_missing_locations(mutant)


def rejected(run: Callable[[Args], Any], args: Args, expected: Any) -> bool:
    try:
        outcome = run(args)
    except (LimitExceeded, RecursionError, MemoryError):
        return True
    return bool(outcome.error) or outcome.value != expected or type(outcome.value) is not type(expected)


def verdicts(task: Task, *, trials: int) -> Iterator[tuple[str, str, str]]:
    """Yield the mutation, verdict ("rejected", "accepted" or "equivalent") and source of each of a task's mutants."""
    reference = compile_function(task.source)
    rng = Random(task.source)
    inputs = [task.sample(rng) for _ in range(trials)]
    outputs: list[Any] = []  # the reference's results; computed when a mutant passes the hidden tests
    tests = sorted(task.tests, key=lambda test: len(repr(test.args)))
    for operator, mutant in mutants(task.source):
        text = ast.unparse(mutant)
        try:
            run = compile_limited(mutant, max_iterations=MAX_ITERATIONS)
        except SyntaxError:  # for example, a nonlocal variable without an assignment
            continue
        if any(rejected(run, test.args, test.expected[0]) for test in tests):
            yield operator, "rejected", text
            continue
        outputs = outputs or [reference(*copy.deepcopy(args)) for args in inputs]
        differs = any(rejected(run, args, output) for args, output in zip(inputs, outputs, strict=True))
        yield operator, "accepted" if differs else "equivalent", text


def program_task(level: str, seed: int) -> Task:
    """Return the program in a Puzzles task; Repair uses the same programs."""
    rng = Random(seed)
    generated = generate_program(rng, **Puzzles.levels[level])
    program = generated.program
    # Half of the inputs are independent of the program's constants, unlike the hidden tests.
    hints = (Hints.from_source(program.source), UNIFORM)
    return Task(
        source=program.source,
        tests=hidden_tests(rng, program, generated.outputs),
        sample=lambda rng: program.sample(rng, rng.choice(hints)),
    )


def algorithm_task(level: str, seed: int) -> Task:
    rng = Random(seed)
    settings = Algorithms.levels[level]
    item = None
    while item is None:
        problem = Algorithms.draw_program(rng, **settings)
        item = Algorithms.make_item(rng, problem, **settings)
    return Task(source=problem.source, tests=item.gold, sample=problem.small)


TASKS: dict[str, Callable[[str, int], Task]] = {"Puzzles": program_task, "Algorithms": algorithm_task}


def measure(name: str, levels: list[str], *, seeds: int, trials: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Return the number of mutants by mutation and verdict, and the sources of wrongly accepted mutants."""
    counts: Counter[tuple[str, str]] = Counter()
    accepted: list[str] = []
    for level in levels:
        for seed in range(seeds):
            task = TASKS[name](level, seed)
            for operator, verdict, source in verdicts(task, trials=trials):
                counts[operator, verdict] += 1
                if verdict == "accepted":
                    heading = f"# {name} {level}, seed {seed}: {operator}"
                    accepted.append(f"{heading}\n{source}\n\n# instead of\n{task.source}")
    return counts, accepted


def share_rejected(counts: Counter[tuple[str, str]]) -> float:
    """Return the share of non-equivalent mutants that the hidden tests reject."""
    killed = sum(count for (_, verdict), count in counts.items() if verdict == "rejected")
    wrong = sum(count for (_, verdict), count in counts.items() if verdict == "accepted")
    return killed / (killed + wrong) if killed + wrong else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="Tasks to measure (default all)."
    )
    parser.add_argument(
        "--levels",
        nargs="+",
        choices=Puzzles.levels,
        default=list(Puzzles.levels),
        help="Levels to measure (default all).",
    )
    parser.add_argument("--seeds", type=int, default=40, help="Programs per task and level (default 40).")
    parser.add_argument(
        "--trials",
        type=int,
        default=2000,
        help="Random inputs that decide whether a mutant is equivalent (default 2000).",
    )
    parser.add_argument("--show", type=int, default=0, help="Number of wrongly accepted mutants to print (default 0).")
    parser.add_argument("--json", action="store_true", help="Print the numbers of mutants as JSON.")
    args = parser.parse_args()
    missed = False
    report: dict[str, Any] = {}
    for name in args.tasks:
        counts, accepted = measure(name, args.levels, seeds=args.seeds, trials=args.trials)
        share = share_rejected(counts)
        missed |= share < REQUIRED
        operators = sorted({operator for operator, _ in counts})
        rows = {
            operator: {verdict: counts[operator, verdict] for verdict in ("rejected", "accepted", "equivalent")}
            for operator in operators
        }
        report[name] = {"share_rejected": share, "operators": rows}
        if not args.json:
            print(f"{name:22}{'rejected':>10}{'accepted':>10}{'equivalent':>12}{'share':>8}")
            for operator in operators:
                row = rows[operator]
                total = row["rejected"] + row["accepted"]
                part = f"{row['rejected'] / total:.3f}" if total else "-"
                print(f"{operator:22}{row['rejected']:>10}{row['accepted']:>10}{row['equivalent']:>12}{part:>8}")
            print(f"{'all':22}{'':32}{share:>8.3f}\n")
        for text in accepted[: args.show]:
            print(text, end="\n\n")
    if args.json:
        print(json.dumps(report))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

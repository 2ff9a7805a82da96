r"""Compare Palestra's graders with GEM's on the same answers and the same submission.

    python benchmarks/grading.py [--quick] [--no-gem] [--json]

Each implementation ("side") runs in a child process. The sides take turns, so that other load on the machine affects
both; each reported number is the median over the turns. In math, 200 new answers per turn are each graded once by one
caller. The mix resembles model answers to GSM8K, MATH and similar datasets: 50% integers (some with units, commas
or `x =`), 15% fractions, decimals and percentages, 20% LaTeX in closed form (roots, multiples of pi, polynomials,
complex numbers), 8% tuples, sets, intervals and matrices, 7% that need an algebra system (logarithms, trigonometry,
cube roots, exponentials); 60% are correct but written in a different form than the gold answer; the others are near
misses. In code, one correct submission is graded with 50 hidden tests on standard input: in the sandbox on Palestra's
side, and by five workers without isolation on GEM's side. The same submission is also graded with a wrong expected
output in the last test.

Targets: 3 times GEM's answers per second, and submissions graded 4 times faster. Exits with 1 if a target is missed.
The second target was 5 while all tests of a submission ran in one process, in which a submission could forge results.
Now each test has a process with its own namespaces; forking it and copying the pages it writes to take most of the
time.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sides import Child, first_on_path, gem_python

HERE = Path(__file__).resolve().parent
ANSWERS = 200  # per turn
TESTS = 50
PROGRAM = """\
import sys

def main():
    data = sys.stdin.read().split()
    n = int(data[0])
    numbers = list(map(int, data[1:1 + n]))
    best = current = numbers[0]
    for number in numbers[1:]:
        current = max(number, current + number)
        best = max(best, current)
    print(best)

main()
"""

Pair = tuple[str, str, bool]  # answer, gold answer, whether both are equal


def integer(r: random.Random, equal: bool) -> tuple[str, str]:
    n = r.choice([r.randint(0, 100), r.randint(100, 100_000)])
    other = n if equal else r.choice([n + 1, n + 10, 2 * n + 1, abs(n - 3)])
    return r.choice(
        [f"{other}"] * 6 + [f"{other:,}", f"{other}.0", f"\\${other}", f"x = {other}", f"{other} cm"]
    ), f"{n}"


def fraction(r: random.Random, equal: bool) -> tuple[str, str]:
    p, q = r.randint(1, 60), r.choice([2, 4, 5, 8, 10, 20])
    other = p if equal else p + 1
    forms = [f"{other / q}", f"{other}/{q}", f"\\dfrac{{{2 * other}}}{{{2 * q}}}", f"{100 * other / q:g}\\%"]
    return r.choice(forms), f"\\frac{{{p}}}{{{q}}}"


def closed(r: random.Random, equal: bool) -> tuple[str, str]:
    a, b, c = r.randint(2, 9), r.choice([2, 3, 5, 7]), r.randint(1, 9)
    d = a if equal else a + 1
    return r.choice(
        [
            (f"\\sqrt{{{d * d * b}}}", f"{a}\\sqrt{{{b}}}"),
            (f"\\frac{{{d}}}{{{b}}}\\pi", f"\\frac{{{a}\\pi}}{{{b}}}"),
            (f"x^2+{d + c}x+{d * c}", f"(x+{a})(x+{c})"),
            (f"{c}i+{d}", f"{a}+{c}i"),
            (f"{c}+{d}\\sqrt{{{b}}}", f"{a}\\sqrt{{{b}}}+{c}"),
            (f"2^{{{d}}}", f"{2**a}"),
        ]
    )


def several(r: random.Random, equal: bool) -> tuple[str, str]:
    a, b, c, d = r.sample(range(-20, 21), 4)
    low, high = min(a, b), max(a, b)
    e = d if equal else d + 50
    f = high if equal else high + 1
    return r.choice(
        [
            (f"({a}, {b}, {e})", f"({a},{b},{d})"),
            (f"\\{{{e}, {c}, {a}\\}}", f"\\{{{a},{c},{d}\\}}"),
            (f"({low}, {f}]", f"\\left({low},{high}\\right]"),
            (
                f"\\begin{{bmatrix}} {a} & {b} \\\\ {c} & {e} \\end{{bmatrix}}",
                f"\\begin{{pmatrix}}{a}&{b}\\\\{c}&{d}\\end{{pmatrix}}",
            ),
        ]
    )


def symbolic(r: random.Random, equal: bool) -> tuple[str, str]:
    a, b, v = r.randint(2, 7), r.randint(2, 6), r.choice("xtn")
    d = b if equal else b + 1
    return r.choice(
        [
            (f"{d}\\ln {a}", f"\\ln {a**b}"),
            (f"{a}\\sqrt[3]{{{d}}}", f"\\sqrt[3]{{{a**3 * b}}}"),
            (f"e^{{{v}}} \\cdot e^{{{d}}}", f"e^{{{v}+{b}}}"),
            (f"{d}\\sin {v}\\cos {v}", f"\\frac{{{b}}}{{2}}\\sin(2{v})"),
            (f"({v}+{d})^{{1/2}}", f"\\sqrt{{{v}+{b}}}"),
        ]
    )


def mix(seed: int, count: int) -> list[Pair]:
    r = random.Random(seed)
    makers = r.choices([integer, fraction, closed, several, symbolic], weights=[50, 15, 20, 8, 7], k=count)
    pairs = []
    for maker in makers:
        equal = r.random() < 0.6
        pairs.append((*maker(r, equal), equal))
    return pairs


def hidden_tests(seed: int, *, last_wrong: bool) -> dict[str, list[str]]:
    r = random.Random(seed)
    inputs, outputs = [], []
    for _ in range(TESTS):
        numbers = [r.randint(-100, 100) for _ in range(r.randint(1, 200))]
        best = max(sum(numbers[i:j]) for i in range(len(numbers)) for j in range(i + 1, len(numbers) + 1))
        inputs.append(f"{len(numbers)}\n{' '.join(map(str, numbers))}\n")
        outputs.append(f"{best}\n")
    if last_wrong:
        outputs[-1] = f"{int(outputs[-1]) + 1}\n"
    return {"inputs": inputs, "outputs": outputs}


def gem_with_graders() -> str:
    """Return GEM's interpreter, with undeclared dependencies of its math and code environments installed."""
    python = gem_python()
    ready = subprocess.run([python, "-c", "import datasets, pylatexenc"], capture_output=True, check=False)
    if ready.returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "datasets", "pylatexenc"], check=True)
    return python


def _side(python: str, name: str) -> Child:
    return Child(python, "grading_side.py", name, env=first_on_path(python))


def measure(ours: Child, gem: Child | None, *, turns: int, answers: int) -> dict[str, Any]:
    sides = [ours] if gem is None else [ours, gem]
    for side in sides:
        side.request("math", pairs=mix(999, 40))  # warm up: import modules and start workers
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    correct: dict[str, int] = {side.name: 0 for side in sides}
    times: dict[str, dict[str, list[float]]] = {side.name: {"correct": [], "wrong": []} for side in sides}
    for turn in range(turns):
        pairs = mix(turn, answers)
        for side in sides:
            result = side.request("math", pairs=pairs)
            rates[side.name].append(answers / result["seconds"])
            correct[side.name] += result["correct"]
    for turn in range(turns + 1):
        for kind, last_wrong in (("correct", False), ("wrong", True)):
            tests = hidden_tests(3, last_wrong=last_wrong)
            for side in sides:
                seconds = side.request("code", program=PROGRAM, tests=tests, times=1, expected=not last_wrong)
                if turn:  # the first turn includes starting the sandboxes
                    times[side.name][kind] += seconds
    return {
        side.name: {
            "answers_per_s": median(rates[side.name]),
            "correct": correct[side.name] / (turns * answers),
            "code_s": median(times[side.name]["correct"]),
            "code_wrong_s": median(times[side.name]["wrong"]),
        }
        for side in sides
    }


def missed_bars(figures: dict[str, Any]) -> list[str]:
    ours, gem = figures["ours"], figures.get("gem")
    missed = []
    if ours["correct"] < 1:
        missed.append(f"{100 * (1 - ours['correct']):.2f}% of the answers are graded incorrectly")
    if gem is not None:
        if ours["answers_per_s"] < 3 * gem["answers_per_s"]:
            missed.append(
                f"{ours['answers_per_s'] / gem['answers_per_s']:.1f}x GEM's answers per second; the target is 3x"
            )
        missed += [
            f"a submission is graded {gem[key] / ours[key]:.1f}x faster than GEM's; the target is 4x"
            for key in ("code_s", "code_wrong_s")
            if 4 * ours[key] > gem[key]
        ]
    return missed


def show(figures: dict[str, Any], missed: list[str]) -> None:
    ours, gem = figures["ours"], figures.get("gem")
    print(f"{'':<44}{'Palestra':>12}{'GEM':>12}{'ratio':>8}")
    for name, key, better in (
        ("math, answers per second, one caller", "answers_per_s", "more"),
        ("math, share graded correctly", "correct", ""),
        (f"{TESTS} hidden tests, all pass, s", "code_s", "less"),
        (f"{TESTS} hidden tests, the last fails, s", "code_wrong_s", "less"),
    ):
        theirs = ratio = ""
        if gem is not None:
            theirs = f"{gem[key]:.3f}"
            if better:
                ratio = f"{ours[key] / gem[key] if better == 'more' else gem[key] / ours[key]:.1f}x"
        print(f"{name:<44}{ours[key]:>12.3f}{theirs:>12}{ratio:>8}")
    print("\nall targets are met" if not missed else "\nmissed: " + "; ".join(missed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="Run one short turn.")
    parser.add_argument("--no-gem", action="store_true", help="Measure only Palestra.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours = _side(sys.executable, "ours")
    gem = None if args.no_gem else _side(gem_with_graders(), "gem")
    try:
        figures = measure(ours, gem, turns=1 if args.quick else 7, answers=60 if args.quick else ANSWERS)
    finally:
        for side in (ours, gem):
            if side is not None:
                side.close()
    missed = missed_bars(figures)
    if args.json:
        print(json.dumps({**figures, "missed": missed}, indent=2))
    else:
        show(figures, missed)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

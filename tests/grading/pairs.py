"""Generate pairs of answers with equal values but different notation, and pairs with slightly different values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Pair:
    kind: str
    answer: str
    gold: str
    equal: bool


Maker = Callable[[random.Random], Iterator[Pair]]


def integer_forms(n: int, r: random.Random) -> list[str]:
    k = r.randint(2, 9)
    grouped = f"{n:,}"
    return [
        str(n),
        f"{n}.0",
        grouped,
        grouped.replace(",", "{,}"),
        grouped.replace(",", "\\,"),
        f"${n}$",
        f"\\boxed{{{n}}}",
        f"\\( {n} \\)",
        f"x = {n}",
        f"\\text{{{n}}}",
        f"{n}.",
        f"**{n}**",
        f"\\frac{{{n * k}}}{{{k}}}",
        f"{n - k}+{k}",
        f"{n} \\text{{ cm}}",
        f"{n} units",
        f"The answer is {n}.",
        f"{{{n}}}",
        str(n).replace("-", "\u2212"),
        f"\\left({n}\\right)",
    ]


def wholes(r: random.Random) -> Iterator[Pair]:
    n = r.choice([r.randint(-50, 50), r.randint(-99_999, 9_999_999)])
    one, two = r.sample(integer_forms(n, r), 2)
    yield Pair("whole", one, two, True)
    other = r.choice([n + 1, n - 1, n * 10, n + 1000, -n if n else 1, int(f"{n}0") + 1])
    if other != n:
        yield Pair("whole", r.choice(integer_forms(other, r)), r.choice(integer_forms(n, r)), False)


def fraction_forms(f: Fraction, r: random.Random) -> list[str]:
    p, q = f.numerator, f.denominator
    k = r.randint(2, 7)
    sign = "-" if p < 0 else ""
    forms = [
        f"{p}/{q}",
        f"\\frac{{{p}}}{{{q}}}",
        f"{sign}\\frac{{{abs(p)}}}{{{q}}}",
        f"\\dfrac{{{p}}}{{{q}}}",
        f"{sign}\\tfrac{{{abs(p)}}}{{{q}}}",
        f"\\frac{{{p * k}}}{{{q * k}}}",
        f"{p * k} / {q * k}",
        f"y = {sign}\\frac{{{abs(p)}}}{{{q}}}",
        f"$\\displaystyle {sign}\\frac{{{abs(p)}}}{{{q}}}$",
        f"({p})/({q})",
        f"{p} \\div {q}",
        f"\\frac{{{-p}}}{{{-q}}}",
    ]
    if abs(p) > q:
        whole, rest = divmod(abs(p), q)
        if rest:
            forms += [f"{sign}{whole}\\frac{{{rest}}}{{{q}}}", f"{sign}{whole} {rest}/{q}"]
    if not any(q % prime == 0 for prime in (3, 7, 11, 13)):
        decimal = f"{p / q:.10f}".rstrip("0")
        forms += [decimal, f"{sign}{decimal.lstrip('-0')}" if abs(p) < q else decimal]
        percent = f"{100 * p / q:.8f}".rstrip("0").rstrip(".")
        forms += [f"{percent}%", f"{percent}\\%"]
    else:
        forms += [f"{p / q:.8f}"]
    return forms


def fractions(r: random.Random) -> Iterator[Pair]:
    f = Fraction(r.randint(-60, 60) or 7, r.choice([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 20, 25, 40]))
    if f.denominator == 1:
        f += Fraction(1, 3)
    forms = fraction_forms(f, r)
    one, two = r.sample(forms, 2)
    yield Pair("fraction", one, two, True)
    other = r.choice(
        [f + Fraction(1, 1000), -f, 1 / f if abs(f) != 1 else f + 1, f + 1, f * Fraction(101, 100), f / 10]
    )
    if other != f and other.denominator > 1:
        exact = fraction_forms(other, r)[:12]
        yield Pair("fraction", r.choice(exact), r.choice(forms[:12]), False)
    yield Pair(
        "decimal", f"{float(f):.3f}", f"\\frac{{{f.numerator}}}{{{f.denominator}}}", Fraction(f"{float(f):.3f}") == f
    )


def roots(r: random.Random) -> Iterator[Pair]:
    a, b, c = r.randint(2, 9), r.choice([2, 3, 5, 6, 7, 10, 11, 15]), r.randint(2, 9)
    forms = [
        f"{a}\\sqrt{{{b}}}",
        f"\\sqrt{{{a * a * b}}}",
        f"\\frac{{{a * b}}}{{\\sqrt{{{b}}}}}",
        f"{a} \\cdot \\sqrt{{{b}}}",
        f"\\sqrt{{{b}}} \\times {a}",
        f"{a}*{b}^{{1/2}}",
        f"{a}\u221a{b}" if b < 10 else f"{a}\\sqrt{{{b}}} ",
    ]
    one, two = r.sample(forms, 2)
    yield Pair("root", one, two, True)
    wrong = [f"{a + 1}\\sqrt{{{b}}}", f"{a}\\sqrt{{{b + 1}}}", f"\\sqrt{{{a * b}}}", f"-{a}\\sqrt{{{b}}}", f"{a * b}"]
    yield Pair("root", r.choice(wrong), one, False)
    sums = [
        f"{c}+{a}\\sqrt{{{b}}}",
        f"{a}\\sqrt{{{b}}}+{c}",
        f"\\sqrt{{{a * a * b}}} + {c}",
        f"{c} - (-{a}\\sqrt{{{b}}})",
    ]
    one, two = r.sample(sums, 2)
    yield Pair("root", one, two, True)
    yield Pair("root", f"{c}-{a}\\sqrt{{{b}}}", one, False)
    if c * c != b:
        yield Pair("root", f"\\frac{{1}}{{{c}+\\sqrt{{{b}}}}}", f"\\frac{{{c}-\\sqrt{{{b}}}}}{{{c * c - b}}}", True)
        yield Pair("root", f"\\frac{{1}}{{{c}+\\sqrt{{{b}}}}}", f"\\frac{{{c}+\\sqrt{{{b}}}}}{{{c * c - b}}}", False)


def circles(r: random.Random) -> Iterator[Pair]:
    p, q = r.randint(1, 15), r.choice([2, 3, 4, 5, 6, 8])
    forms = [
        f"\\frac{{{p}\\pi}}{{{q}}}",
        f"\\frac{{{p}}}{{{q}}}\\pi",
        f"{p}\\pi/{q}",
        f"\\pi \\cdot \\frac{{{p}}}{{{q}}}",
        f"\\frac{{{2 * p}\\pi}}{{{2 * q}}}",
        f"{p}\u03c0/{q}",
    ]
    one, two = r.sample(forms, 2)
    yield Pair("pi", one, two, True)
    wrong = [
        f"\\frac{{{p + 1}\\pi}}{{{q}}}",
        f"\\frac{{{p}}}{{{q}\\pi}}",
        f"\\frac{{{p}}}{{{q}}}",
        f"\\frac{{{p}\\pi^2}}{{{q}}}",
    ]
    yield Pair("pi", r.choice(wrong), one, False)
    yield Pair("pi", f"{3.14 * p / q:.2f}", one, False)


def polynomials(r: random.Random) -> Iterator[Pair]:
    a, b, c = r.randint(2, 9), r.randint(1, 9), r.randint(1, 9)
    v = r.choice("xytn")
    cases = [
        [f"({v}+{b})({v}+{c})", f"{v}^2+{b + c}{v}+{b * c}", f"{b * c} + {b + c}{v} + {v}^{{2}}"],
        [f"{a}({v}-{b})", f"{a}{v}-{a * b}", f"-{a * b}+{a}{v}"],
        [f"({v}+{b})^2", f"{v}^2+{2 * b}{v}+{b * b}", f"({b}+{v})^{{2}}"],
        [f"\\frac{{{a}{v}+{a * b}}}{{{a}}}", f"{v}+{b}", f"{b} + {v}"],
        [f"{v}^2-{b * b}", f"({v}-{b})({v}+{b})", f"-{b * b}+{v}^2"],
        [f"\\frac{{{a}}}{{{v}}}", f"{a}/{v}", f"{a}{v}^{{-1}}"],
        [f"\\frac{{{v}}}{{{a}}}+{b}", f"\\frac{{{v}+{a * b}}}{{{a}}}", f"{b}+\\frac{{1}}{{{a}}}{v}"],
    ]
    chosen = r.choice(cases)
    one, two = r.sample(chosen, 2)
    yield Pair("polynomial", one, two, True)
    other = "z" if v != "z" else "w"
    wrong = [one.replace(v, other), f"{one}+1", f"-({one})", f"{a + 1}{v}-{a * b + 1}"]
    yield Pair("polynomial", r.choice(wrong), two, False)


def complexes(r: random.Random) -> Iterator[Pair]:
    a, b = r.randint(1, 12), r.randint(2, 12)
    yield Pair("complex", f"{a}+{b}i", f"{b}i + {a}", True)
    yield Pair("complex", f"({a}+{b}i)(1)", f"{a} + {b}i", True)
    yield Pair("complex", f"{a}-{b}i", f"{a}+{b}i", False)


def scientific(r: random.Random) -> Iterator[Pair]:
    m, e = r.randint(11, 99), r.randint(2, 9)
    value = m * 10 ** (e - 1)
    forms = [f"{m / 10} \\times 10^{{{e}}}", f"{m / 10}e{e}", f"{value}", f"{value:,}", f"{m / 10} \\cdot 10^{e}"]
    one, two = r.sample(forms, 2)
    yield Pair("scientific", one, two, True)
    yield Pair("scientific", f"{m / 10} \\times 10^{{{e + 1}}}", one, False)


def number(r: random.Random) -> tuple[str, str]:
    """Return two notations of the same number, for use as list elements."""
    if r.random() < 0.5:
        n = r.randint(-20, 20)
        return str(n), f"\\frac{{{2 * n}}}{{2}}"
    f = Fraction(r.randint(1, 19), r.choice([2, 4, 5, 8]))
    return f"\\frac{{{f.numerator}}}{{{f.denominator}}}", f"{float(f)}"


def distinct(r: random.Random, count: int) -> list[tuple[str, str]]:
    numbers: dict[str, tuple[str, str]] = {}
    while len(numbers) < count:
        pair = number(r)
        numbers[str(Fraction(pair[1]) if "frac" not in pair[1] else Fraction(pair[0]))] = pair
    return list(numbers.values())


def lists(r: random.Random) -> Iterator[Pair]:
    items = distinct(r, r.randint(2, 4))
    ones, twos = [a for a, _ in items], [b for _, b in items]
    shuffled = twos[1:] + twos[:1]
    yield Pair("tuple", f"({', '.join(ones)})", f"({','.join(twos)})", True)
    yield Pair("tuple", f"\\left( {' , '.join(ones)} \\right)", f"({','.join(twos)})", True)
    yield Pair("tuple", f"({', '.join(ones)})", f"({','.join(shuffled)})", False)
    yield Pair("set", f"\\{{{', '.join(ones)}\\}}", f"\\{{{','.join(shuffled)}\\}}", True)
    yield Pair("set", f"\\{{{', '.join(ones[1:])}\\}}", f"\\{{{','.join(shuffled)}\\}}", False)
    yield Pair("list", ", ".join(ones), ", ".join(shuffled), True)
    yield Pair("list", " and ".join(ones), ", ".join(shuffled), True)
    yield Pair("list", ", ".join(ones), ", ".join([*shuffled, "77"]), False)
    yield Pair("list", ", ".join([*ones[1:], "77"]), ", ".join(shuffled), False)
    yield Pair("set", "\\{" + "\\} \\cup \\{".join(ones) + "\\}", f"\\{{{','.join(shuffled)}\\}}", True)


def intervals(r: random.Random) -> Iterator[Pair]:
    low, high = r.randint(-20, 0), r.randint(1, 20)
    left, right = r.choice("(["), r.choice(")]")
    lower, upper = ("<" if left == "(" else "\\le"), ("<" if right == ")" else "\\leq")
    text = f"{left}{low},{high}{right}"
    yield Pair("interval", f"\\left{left}{2 * low}/2, {high}.0\\right{right}", text, True)
    yield Pair("interval", f"{low} {lower} x {upper} {high}", text, True)
    yield Pair("interval", f"x \\in {text}", text, True)
    flipped = "[" if left == "(" else "("
    yield Pair("interval", f"{flipped}{low},{high}{right}", text, False)
    yield Pair("interval", f"{left}{low},{high + 1}{right}", text, False)
    yield Pair("interval", f"x > {high}", f"({high}, \\infty)", True)
    yield Pair("interval", f"x \\ge {high}", f"({high}, \\infty)", False)
    union = f"(-\\infty, {low}) \\cup ({high}, \\infty)"
    yield Pair("union", f"({high},\\infty)\\cup(-\\infty,{low})", union, True)
    yield Pair("union", f"x < {low} \\text{{ or }} x > {high}", union, True)
    yield Pair("union", f"(-\\infty,{low}]\\cup({high},\\infty)", union, False)


def matrices(r: random.Random) -> Iterator[Pair]:
    a, b, c, d = r.sample(range(-30, 31), 4)
    gold = f"\\begin{{pmatrix}} {a} & {b} \\\\ {c} & {d} \\end{{pmatrix}}"
    yield Pair("matrix", f"\\begin{{bmatrix}}{a}&{b}\\\\{c}&{2 * d}/2\\end{{bmatrix}}", gold, True)
    yield Pair("matrix", f"[[{a}, {b}], [{c}, {d}]]", gold, True)
    yield Pair("matrix", f"\\begin{{pmatrix}}{a}&{c}\\\\{b}&{d}\\end{{pmatrix}}", gold, False)
    yield Pair("matrix", f"\\begin{{pmatrix}}{a}&{b}\\\\{c}&{d + 1}\\end{{pmatrix}}", gold, False)
    column = f"\\begin{{pmatrix}} {a} \\\\ {b} \\\\ {c} \\end{{pmatrix}}"
    yield Pair("vector", f"({a}, {b}, {c})", column, True)
    yield Pair("vector", f"({a}, {c}, {b})", column, False)


def equations(r: random.Random) -> Iterator[Pair]:
    m, b = r.randint(2, 9), r.randint(1, 9)
    gold = f"y = {m}x + {b}"
    yield Pair("equation", f"y={b}+{m}x", gold, True)
    yield Pair("equation", f"{m}x - y + {b} = 0", gold, True)
    yield Pair("equation", f"{m}x+{b}", gold, True)
    yield Pair("equation", f"{m}x + y + {b} = 0", gold, False)
    yield Pair("equation", f"y = {m}x - {b}", gold, False)
    yield Pair("equation", f"z = {m}x + {b}", gold, False)
    yield Pair("equation", f"x = {m}, y = {b}", f"y = {b}, x = {m}", True)
    if m != b:
        yield Pair("equation", f"x = {b}, y = {m}", f"x = {m}, y = {b}", False)
    yield Pair("equation", f"x = \\pm {m}", f"{m}, -{m}", True)
    yield Pair(
        "equation", f"x = {b} \\pm \\sqrt{{{m * m + 1}}}", f"{b}-\\sqrt{{{m * m + 1}}}, {b}+\\sqrt{{{m * m + 1}}}", True
    )
    yield Pair("equation", f"x = \\pm {m}", f"{m}", False)


def units(r: random.Random) -> Iterator[Pair]:
    n = r.randint(2, 900)
    yield Pair("unit", f"{n} cm", f"{n}", True)
    yield Pair("unit", f"{n}\\text{{ cm}}^2", f"{n} \\text{{ square centimeters}}", True)
    yield Pair("unit", f"{100 * n} cm", f"{n} \\text{{ m}}", True)
    yield Pair("unit", f"{n} \\mathrm{{~cm}}", f"{n} \\text{{ m}}", False)
    yield Pair("unit", f"{n} minutes", f"{n} hours", False)
    yield Pair("unit", f"{60 * n} minutes", f"{n} hours", True)
    yield Pair("unit", f"\\${n}", f"{n} dollars", True)
    yield Pair("unit", f"{n} cents", f"\\${n}", False)
    yield Pair("unit", f"{n}^\\circ", f"{n} degrees", True)
    yield Pair("unit", f"{n} apples", f"{n}", True)
    yield Pair("unit", f"{n + 1} apples", f"{n}", False)
    yield Pair("percent", f"{n + 1}\\%", f"{n + 1}", True)
    yield Pair("percent", f"{n}\\%", f"{n + 1}", False)
    yield Pair("percent", f"0.{n}\\%", f"0.{n}", False)


WORDS = [
    "Tuesday",
    "Monday",
    "even",
    "odd",
    "parabola",
    "ellipse",
    "circle",
    "true",
    "false",
    "yes",
    "no",
    "cat",
    "act",
    "Alice",
]


def words(r: random.Random) -> Iterator[Pair]:
    one, two = r.sample(WORDS, 2)
    yield Pair("word", f"\\text{{{one}}}", one.lower(), True)
    yield Pair("word", f"{one}.", f"\\textbf{{{one}}}", True)
    yield Pair("word", one, two, False)
    letter, other = r.sample("ABCDE", 2)
    yield Pair("choice", f"({letter})", letter, True)
    yield Pair("choice", f"\\text{{({letter})}}", f"\\textbf{{{letter}}}", True)
    yield Pair("choice", f"{letter}) {r.randint(1, 9)}", letter, True)
    yield Pair("choice", f"{other}) {r.randint(1, 9)}", letter, False)
    yield Pair("choice", other, f"({letter})", False)


def symbolic(r: random.Random) -> Iterator[Pair]:
    """Yield pairs that exact arithmetic cannot compare, so that the computer algebra system is used."""
    a, b, v = r.randint(2, 6), r.randint(2, 5), r.choice("xt")
    equal = [
        (f"\\ln {a**b}", f"{b}\\ln {a}"),
        (f"\\log_{{{a}}} {a**b}", f"{b}"),
        (f"\\sqrt[3]{{{a**3 * b}}}", f"{a}\\sqrt[3]{{{b}}}"),
        (f"e^{{{a}{v}}}", f"(e^{{{v}}})^{a}"),
        (f"{a}^{{{v}}} \\cdot {a}^{b}", f"{a}^{{{v}+{b}}}"),
        (f"{a}\\sin^2 {v} + {a}\\cos^2 {v}", f"{a}"),
        (f"\\sqrt{{{v}+{a}}}", f"({v}+{a})^{{1/2}}"),
        (f"\\arctan(1) + {a}", f"\\frac{{\\pi}}{{4}}+{a}"),
    ]
    wrong = [
        (f"\\ln {a**b}", f"{b + 1}\\ln {a}"),
        (f"\\sqrt[3]{{{a**3 * b}}}", f"{a}\\sqrt{{{b}}}"),
        (f"e^{{{a}{v}}}", f"e^{{{a + 1}{v}}}"),
        (f"\\sin({a}{v})", f"{a}\\sin({v})"),
        (f"\\ln {a} + 10^{{-20}}", f"\\ln {a}"),
        (f"\\sqrt{{{v}+{a}}}", f"\\sqrt{{{v}}}+{a}"),
    ]
    one, two = r.choice(equal)
    yield Pair("symbolic", one, two, True)
    one, two = r.choice(wrong)
    yield Pair("symbolic", one, two, False)


MAKERS: dict[Maker, int] = {
    wholes: 260, fractions: 220, roots: 60, circles: 60, polynomials: 120, complexes: 20, scientific: 40, lists: 40,
    intervals: 40, matrices: 30, equations: 30, units: 30, words: 30, symbolic: 30,
}  # fmt: skip


def pairs(seed: int = 7) -> list[Pair]:
    """Return thousands of pairs of all kinds, generated from `seed`."""
    result: list[Pair] = []
    for maker, times in MAKERS.items():
        r = random.Random(f"{seed} {maker.__name__}")
        for _ in range(times):
            result += maker(r)
    return result

"""Test which answers are fully evaluated (5, not 2 + 3), and that `evaluated=True` rejects other expressions."""

from __future__ import annotations

import pytest

from palestra.grading import grade_math
from palestra.grading.evaluated import is_evaluated

RESULTS = [
    "96",
    "-5",
    "+5",
    "(5)",
    "1{,}234",
    "1,234.5",
    "1 000 000",
    "0.5",
    ".5",
    r"0.1\overline{6}",
    "1e6",
    r"1.2 \times 10^{5}",
    r"3 \cdot 10^{-2}",
    "3/4",
    "6/8",
    r"\frac{3}{4}",
    r"-\frac{3}{4}",
    r"\frac{-3}{4}",
    r"\dfrac34",
    r"2\frac{3}{4}",
    "3 1/2",
    "50\\%",
    r"\$12.50",
    "12 cm",
    r"12\text{ cm}^2",
    r"60^\circ",
    "1.5 million",
    "five",
    r"\sqrt{5}",
    r"2\sqrt{3}",
    r"\sqrt{12}",
    r"\sqrt[3]{5}",
    r"3 + 2\sqrt{5}",
    r"2(3 + \sqrt{5})",
    r"\frac{-3 \pm \sqrt{5}}{2}",
    r"\frac{\sqrt{3}}{2}",
    r"\frac{1}{\sqrt{2}}",
    r"5\pi",
    r"5 \pi",
    r"\frac{5\pi}{2}",
    "3 + 2i",
    "(1, 2)",
    "(3/4, 5)",
    r"\left(-\tfrac{1}{2},\, 3\right)",
    "x = 5",
    "x = 1, y = 2",
    "(x, y) = (1, 2)",
    "4 + 99 - 7 = 96",
    "1 < x \\le 2",
    "3:4",
    "-42z^7 - 168z^6 - 136",
    r"\frac{1}{2}x^2 + 3x",
    "2xy",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
    "no solution",
    "42.",
    r"\text{42}",
    "**42**",
]
CALCULATIONS = [
    "4 + 99 - 7",
    "4+99-7",
    "(4 + 99) - 7",
    r"12 \cdot 8",
    "12 * 8",
    "12(8)",
    "96 + 0",
    "1 * 96",
    "192 / 2",
    r"\frac{192}{2}",
    r"\frac{1}{2} + \frac{1}{3}",
    r"\frac{1}{2} \cdot 3",
    r"\frac{3/4}{5/6}",
    "23/9 / 16",
    "1.5/2",
    "2^5",
    "7^3 - 1",
    "3!",
    "-(-5)",
    "|-7|",
    r"\sqrt{16}",
    r"\sqrt{3^2 + 4^2}",
    r"\sqrt{50}/\sqrt{2}",
    r"\sqrt{2}\sqrt{3}",
    r"\binom{5}{2}",
    r"\gcd(710,80)",
    r"\gcd(710, 80)",
    r"\operatorname{lcm}(12, 18)",
    "gcd(710, 80)",
    r"91790^742750 \bmod 1200",
    r"5298 \times 9267 \mod 24",
    r"\log_2 8",
    r"\lfloor 7/2 \rfloor",
    "x = 4 + 99 - 7",
    "x = 10/2",
    "(1 + 1, 2)",
    r"2 \pm 3",
    "3 * 5 apples",
    "(2z + 1)(z - 3)",
    "2(z + 1)",
    "(z + 1)^2",
    "2z * z",
    "3z + 4z",
    "f(g(5))",
    r"\sum_{k=1}^{5} k",
    "%s%n{0}{x}",
    "1" * 4_000 + "^9",
    "(" * 3_000 + "1",
]


@pytest.mark.parametrize("answer", RESULTS)
def test_results(answer: str) -> None:
    assert is_evaluated(answer)


@pytest.mark.parametrize("answer", CALCULATIONS)
def test_calculations(answer: str) -> None:
    assert not is_evaluated(answer)


def test_grader_refuses_calculations() -> None:
    assert grade_math("4 + 99 - 7", "96").correct
    grade = grade_math("4 + 99 - 7", "96", evaluated=True)
    assert not grade.correct
    assert grade.why == "'4 + 99 - 7' is a calculation, but this task requires its result"
    assert grade.hint == "Give the result, not a calculation."
    assert not grade_math(r"\gcd(710,80)", "10", evaluated=True).correct


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\frac{6}{8}", "3/4"),
        ("0.75", "3/4"),
        (r"\sqrt{12}", r"2\sqrt{3}"),
        ("x = 5", "5"),
        ("1{,}234", "1234"),
        ("4 + 99 - 7 = 96", "96"),
        ("x = 1, y = 2", "(1, 2)"),
        ("3z + 1", "1 + 3z"),
    ],
)
def test_grader_accepts_results(answer: str, gold: str) -> None:
    assert grade_math(answer, gold, evaluated=True).correct


@pytest.mark.parametrize("answer", ["%s%n{0}{x}", "%1", "\\1"])
def test_unreadable_answers_do_not_raise(answer: str) -> None:
    assert not is_evaluated(answer)

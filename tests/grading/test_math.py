"""Test the math grader on selected pairs of equal and different answers; test_agreement.py generates more pairs."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.grading import grade_math

EQUAL = [
    (r"\frac{1}{2}", "0.5"),
    (r"\frac12", "1/2"),
    (r"-2\frac{3}{4}", "-11/4"),
    ("3 1/2", "7/2"),
    ("3½", "3.5"),
    (r"0.1\overline{6}", "1/6"),
    ("50%", "0.5"),
    ("12", r"12\%"),
    (r"\$1,234.50", "1234.5"),
    ("1 000 000", "1e6"),
    ("1.5 million", "1500000"),
    ("five", "5"),
    (r"\sqrt{-4}", "2i"),
    (r"\frac{1}{1+\sqrt 2}", r"\sqrt{2}-1"),
    (r"\binom{5}{2} + 3!", "16"),
    ("|-7|", "7"),
    ("3.141593", r"\pi"),
    (r"2\pi r^2+2\pi rh", r"2\pi r(r+h)"),
    ("x_1 + x_2", "x_2 + x_1"),
    ("x = 3", "3"),
    ("2+3=5", "5"),
    ("f(2) = 7", "7"),
    (r"\theta = 30^\circ", "30"),
    ("x^2+y^2=25", "2x^2+2y^2=50"),
    (r"x \approx 3.14", "3.14"),
    ("2x < 6", "x < 3"),
    ("-2x < 6", "x > -3"),
    ("x \\ge 5", "5 \\le x"),
    (r"\{x \mid x > 3\}", r"(3, \infty)"),
    (r"\{1,3\}\cup\{2,4\}", r"\{1,2,3,4\}"),
    (r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}"),
    (r"\mathbb{R}", r"(-\infty,\infty)"),
    (r"\emptyset", "no solution"),
    ("100,200,300", "300, 200, 100"),
    ("x=1, y=2", "(1,2)"),
    (r"\langle 1,2,3\rangle", "(1,2,3)"),
    ("(2,3), (4,5)", "(4,5), (2,3)"),
    (r"x = 1 \pm \sqrt 2", r"1+\sqrt2, 1-\sqrt2"),
    ("3:4", "3/4"),
    ("10:30 am", "10:30"),
    ("1011_2", "1011_{2}"),
    ("90 minutes", r"\frac{3}{2} \text{ hours}"),
    (r"5\text{ cm}^2", "5 square centimeters"),
    ("(A) 42", "A"),
    ("July 4", "july 4."),
    (r"\text{Tuesday}", "tuesday"),
    ("ab", "ba"),
    (r"\cos 60^\circ", "1/2"),
    (r"\log_2 8", "3"),
    (r"\sqrt[3]{16}", r"2\sqrt[3]{2}"),
    (r"\sin^2 x + \cos^2 x", "1"),
    (r"4^{50000}", "2^{100000}"),
]
DIFFERENT = [
    ("0.333", "1/3"),
    ("0.333334", "1/3"),
    ("0.1000001", "0.1"),
    ("3.14", r"\pi"),
    ("0.5%", "0.5"),
    ("31/2", "3 1/2"),
    ("1 2", "12"),
    ("-4", "4"),
    ("2x = 6", "6"),
    ("3 = 5", "5"),
    ("y = 3", "x = 3"),
    ("x", "y"),
    ("x", "X"),
    (r"\ln X", r"\ln x"),
    ("(2,1)", "(1,2)"),
    ("[1,2]", "(1,2)"),
    ("(1,2)", r"\{1,2\}"),
    ("1,2", "1,2,3"),
    ("1,1,2", "1,2"),
    (r"x \le 3", "x < 3"),
    ("2x < 6", "x > 3"),
    (r"\infty", r"-\infty"),
    ("5 m", "5 cm"),
    ("5 cm", r"5 \text{ cm}^2"),
    ("1011_3", "1011_2"),
    ("1:2", "2:1"),
    ("cat", "act"),
    ("A5", "A"),
    ("5", "A"),
    ("12!", "12"),
    ("(a+b)^2", "a^2+b^2"),
    (r"\sqrt{x^2}", "x"),
    (r"\ln 2 + 10^{-20}", r"\ln 2"),
    (r"\sqrt{2} + 10^{-60}", r"\sqrt{2}"),
    (r"\frac{1}{0}", r"\frac{2}{0}"),
    ("10^{10^{10}}", "5"),
    ("7 or 8", "7"),
    ("the answer", "5"),
    ("", "5"),
    ("  ", "5"),
]


@pytest.mark.parametrize(("answer", "gold"), EQUAL)
def test_equal_in_value(answer: str, gold: str) -> None:
    grade = grade_math(answer, gold)
    assert grade.correct, grade.why
    assert grade.score == 1.0
    assert "equals" in grade.why
    assert grade_math(gold, answer).correct


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_different(answer: str, gold: str) -> None:
    grade = grade_math(answer, gold)
    assert not grade.correct, grade.why
    assert (grade.score, grade.hint) == (0.0, "")
    assert grade.why
    assert not grade_math(gold, answer).correct


def test_several_golds() -> None:
    assert grade_math("0.5", ["7", r"\frac12"]).correct
    grade = grade_math("9", ["7", "8"])
    assert "'7'" in grade.why
    assert "'8'" in grade.why
    assert grade_math("7", 7).correct
    assert grade_math("0.5", [3, 0.5]).correct


def test_multiple_choice_answers() -> None:
    assert grade_math("option c", "C").correct
    assert grade_math("C: the last one", "(C)").correct
    assert grade_math("(c)", "(C)").correct
    assert not grade_math("option b", "C").correct


def test_tolerance_is_relative_and_off_by_default() -> None:
    assert not grade_math("3.14", r"\pi").correct
    assert grade_math("3.14", r"\pi", tolerance=0.01).correct
    assert grade_math(r"2.9 \times 10^8", "299792458", tolerance=0.05).correct
    assert not grade_math("2.8e8", "299792458", tolerance=0.05).correct
    assert not grade_math("-3.14", r"\pi", tolerance=0.01).correct


@pytest.mark.parametrize("gold", [[], None, {"a": 1}, [None]])
def test_invalid_golds_are_rejected(gold: object) -> None:
    with pytest.raises(BadValue):
        grade_math("5", gold)  # type: ignore[arg-type]


def test_other_arguments_are_checked() -> None:
    with pytest.raises(BadValue):
        grade_math(5, "5")  # type: ignore[arg-type]
    with pytest.raises(BadValue):
        grade_math("5", "5", seconds=0)
    with pytest.raises(BadValue):
        grade_math("5", "5", tolerance=-1)


RATIONAL = st.fractions(min_value=-10_000, max_value=10_000, max_denominator=5_000)


@given(RATIONAL, RATIONAL, st.integers(1, 50))
def test_fractions_are_compared_by_value(one: Fraction, two: Fraction, factor: int) -> None:
    scaled = f"\\frac{{{one.numerator * factor}}}{{{one.denominator * factor}}}"
    assert grade_math(scaled, f"{one.numerator}/{one.denominator}").correct
    assert grade_math(scaled, f"{two.numerator}/{two.denominator}").correct == (one == two)


@given(st.integers(-(10**30), 10**30), st.integers(0, 8))
def test_decimals_are_exact(digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    sign, bare = ("-", str(-digits)) if digits < 0 else ("", str(digits))
    bare = bare.rjust(places + 1, "0")
    text = f"{sign}{bare[:-places]}.{bare[-places:]}" if places else f"{sign}{bare}"
    assert grade_math(text, f"{value.numerator}/{value.denominator}").correct
    longer = text if places else f"{text}.0"
    assert not grade_math(f"{longer}1", text).correct


POLYNOMIAL = st.lists(st.integers(-9, 9), min_size=1, max_size=4)


def _product(a: list[int], b: list[int]) -> list[int]:
    total = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            total[i + j] += x * y
    return total


def _to_text(poly: list[int]) -> str:
    return "+".join(f"({factor})x^{{{power}}}" for power, factor in enumerate(poly))


@given(POLYNOMIAL, POLYNOMIAL, POLYNOMIAL)
def test_products_of_polynomials_equal_their_expansion(a: list[int], b: list[int], c: list[int]) -> None:
    expanded = _product(a, b)
    assert grade_math(f"({_to_text(a)})({_to_text(b)})", _to_text(expanded)).correct
    longest = max(len(expanded), len(c))
    same = expanded + [0] * (longest - len(expanded)) == c + [0] * (longest - len(c))
    assert grade_math(f"({_to_text(a)})({_to_text(b)})", _to_text(c)).correct == same


@given(st.integers(1, 10**6), st.integers(1, 200))
def test_square_roots_are_simplified(inside: int, outside: int) -> None:
    assert grade_math(f"\\sqrt{{{inside * outside * outside}}}", f"{outside}\\sqrt{{{inside}}}").correct
    assert not grade_math(f"\\sqrt{{{inside * outside * outside + 1}}}", f"{outside}\\sqrt{{{inside}}}").correct


@given(st.text(max_size=60))
def test_any_text_is_graded_and_equals_itself(text: str) -> None:
    assert not grade_math(text, "123457").correct or "123457" in text
    assert grade_math(text, text).correct == bool(text.strip())

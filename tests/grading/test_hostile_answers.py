"""Test that answers designed to hang, crash or deceive a grader are graded and do not affect later grades."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from palestra.errors import EnvFailed
from palestra.grading import grade_code, grade_math, grade_qa
from palestra.grading.symbolic_pool import SymbolicPool

SECONDS = 0.15
GOLDS = ["7", r"\frac{3}{4}", r"\ln 8", r"\{1,2,3\}", "x^2+1", r"(1,\infty)", "B", "Tuesday"]


def hostile() -> list[str]:
    answers = [
        "9" * 100_000,
        "0." + "3" * 100_000,
        "1e999999999",
        "1e-999999999",
        "10^{10^{10}}",
        "9^9^9^9^9",
        "2^{2^{2^{2^{2^{2}}}}}",
        r"\ln 10^{10^{10}}",
        r"\sqrt[3]{10^{10^{10}}}",
        r"\sin(10^{10^{10}})",
        r"\sum_{k=1}^{10^{12}} \frac{\ln k}{k}",
        r"\int_0^{\infty} \frac{\sin(x^7)\ln x}{x^{3/2}+1} dx",
        r"\prod_{k=1}^{10^{9}} \sin k",
        "100000!",
        "9!!!!!!!!",
        "((9!)!)!",
        r"\binom{10^9}{10^8}",
        "(x+1)^{100000}",
        "(x+y+z+w)^{300}",
        "(1+\\sqrt2+\\sqrt3+\\sqrt5)^{500}",
        "\\sqrt{" + "7" * 900 + "}",
        "x=" * 2_000 + "7",
        "<" * 4_000,
        "1" + "+1" * 1_900,
        "-" * 3_000 + "7",
        "7" + "!" * 3_000,
        "(" * 3_999 + "7",
        "(" * 1_900 + "7" + ")" * 1_900,
        "{" * 1_900 + "7" + "}" * 1_900,
        "[" * 1_900 + "7" + "]" * 1_900,
        "\\{" * 900 + "7" + "\\}" * 900,
        "\\frac{1}{" * 400 + "7" + "}" * 400,
        "\\sqrt{" * 500 + "7" + "}" * 500,
        "\\sqrt" * 700 + "7",
        "\\frac" * 700 + "7",
        "2^{" * 1_000 + "7" + "}" * 1_000,
        "\\ln " * 900 + "7",
        "\\left" * 700 + "7",
        "\\text{" * 600 + "7" + "}" * 600,
        "\\boxed{" * 400 + "7" + "}" * 400,
        "$" * 4_000,
        "*" * 4_000,
        "\\" * 4_000,
        " " * 3_900 + "x",
        "7" + " " * 3_900 + "x",
        "7 " * 2_000,
        "7 a" * 1_300,
        "," * 4_000,
        "1," * 2_000,
        "1;" * 2_000,
        "1 and " * 600,
        "(1,2)\\cup" * 400 + "(1,2)",
        "&" * 4_000,
        "\\begin{pmatrix}" + "1&" * 1_900 + "1\\end{pmatrix}",
        "\\begin{pmatrix}" + "1\\\\" * 1_300 + "1\\end{pmatrix}",
        "\\begin{pmatrix}" * 250,
        "\x00" * 4_000,
        "".join(map(chr, range(32))) + "7",
        "\x1b[31m7\x1b[0m",
        "\ud800\udfff7",
        "\u202e7\u202d",
        "\u0301" * 4_000,
        "\U0001f600" * 1_000,
        "7\u0000",
        "a" * 1_000_000,
        "\\frac{1}{2}" * 300_000,
        "7\n" * 500_000,
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "lambda: 7",
        "{% 7 %}",
        "\\input{/etc/passwd}",
        "\\def\\a{\\a\\a}\\a",
        "\\newcommand{\\x}{7}\\x",
        "%s%s%s%n",
        "nan",
        "inf - inf",
        "0/0",
        "\\frac{0}{0}",
        "1/0",
        "0^{-1}",
        "0^0 - 1 + 8 - 1",
        "True",
        "None",
        "[7][0]",
        "7e",
        "7.7.7",
        "..7..",
        "--++--",
        "√" * 2_000 + "7",
        "∞" * 2_000,
        "½" * 1_000,
        "²" * 2_000,
    ]
    r = random.Random(5)
    pieces = r"\frac{ } { ( ) [ ] \{ \} ^ _ , ; = < > \le \cup \sqrt{ \pi \ln \sin x 1 9 . ! | $ & \\ \text{ % \pm"
    tokens = [*pieces.split(" "), " ", "e", "i", "\\infty", "\\begin{pmatrix}", "^{99}", "10^{99}", "\x07", "é", "°"]
    while len(answers) < 500:
        answers.append("".join(r.choices(tokens, k=r.choice([5, 12, 40, 300]))))
    return answers


def test_five_hundred_hostile_answers_get_a_grade() -> None:
    answers = hostile()
    assert len(answers) == 500
    pool = SymbolicPool(workers=2)

    def check(index: int) -> None:
        answer, gold = answers[index], GOLDS[index % len(GOLDS)]
        while True:
            try:
                grade = grade_math(answer, gold, seconds=SECONDS, pool=pool)
                break
            except EnvFailed:  # the worker processes got no CPU time on a busy machine
                continue
        assert grade.why
        assert not grade.correct, (answer[:80], gold, grade.why)

    try:
        with ThreadPoolExecutor(8) as threads:
            futures = [threads.submit(check, index) for index in range(len(answers))]
            for future in futures:
                future.result(timeout=1200)  # exceeded only if the grader hangs
        assert grade_math(r"3\ln 2", r"\ln 8", pool=pool).correct
        assert not grade_math(r"2\ln 2", r"\ln 8", pool=pool).correct
    finally:
        pool.close()


def test_the_other_graders() -> None:
    for answer in hostile()[:100]:
        assert not grade_qa(answer, ["Tuesday"]).correct
    for program in ("(" * 50_000, "\x00", "-" * 100_000 + "1", "é = 1\nprint(é)", "\ud800"):
        assert not grade_code(program, {"inputs": [""], "outputs": ["7"]}).correct

"""Verify word problems with an independent solver that parses their text."""

from __future__ import annotations

import re
from fractions import Fraction
from random import Random

import pytest

from palestra.envs.math.story_kinds import KINDS
from palestra.envs.math.word_problems import WordProblems
from tests.envs.math import test_story_kinds

PARTS = {"half": 2, "a third": 3, "a quarter": 4, "a fifth": 5, "20%": 5, "50%": 2}
TIMES = {"twice": 2, "three times": 3, "four times": 4}


def sentences(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"[^.?]+[.?]", text)]


def collection(lines: list[str], question: str) -> Fraction:
    has: dict[str, int] = {}
    for line in lines:
        name = line.split()[0]
        if match := re.fullmatch(r"\w+ has (\d+) [a-z]+\.", line):
            has[name] = int(match[1])
        elif match := re.fullmatch(r"\w+ has (\d+) (more|fewer) [a-z]+ than (\w+)\.", line):
            has[name] = has[match[3]] + int(match[1]) * (1 if match[2] == "more" else -1)
        elif match := re.fullmatch(r"\w+ has (.*) as many [a-z]+ as (\w+)\.", line):
            has[name] = has[match[2]] * TIMES[match[1]]
        elif match := re.fullmatch(r"\w+ gives (.*) of (?:his|her) [a-z]+ to (\w+)\.", line):
            moved, rest = divmod(has[name], PARTS[match[1]])
            assert rest == 0
            has[name] -= moved
            has[match[2]] += moved
        elif match := re.fullmatch(r"\w+ (?:gives|sends|hands) (\d+) [a-z]+ (?:over )?to (\w+)\.", line):
            has[name] -= int(match[1])
            has[match[2]] += int(match[1])
        elif match := re.fullmatch(r"\w+ (?:loses|throws away|misplaces) (\d+) [a-z]+\.", line):
            has[name] -= int(match[1])
        elif match := re.fullmatch(r"\w+ buys (\d+) bags with (\d+) [a-z]+ in each\.", line):
            has[name] += int(match[1]) * int(match[2])
        elif match := re.fullmatch(r"\w+ (?:finds|wins|buys|collects) (\d+) more [a-z]+\.", line):
            has[name] += int(match[1])
        else:
            raise AssertionError(line)
        assert min(has.values()) >= 0
    if match := re.search(r"does (\w+) have than (\w+)", question):
        return Fraction(has[match[1]] - has[match[2]])
    if match := re.search(r"does (\w+) have in the end", question):
        return Fraction(has[match[1]])
    return Fraction(sum(has.values()))


def shopping(lines: list[str], question: str) -> Fraction:
    prices: dict[str, int] = {}
    total = Fraction(0)
    for line in lines:
        if match := re.fullmatch(r"An? (\w+) costs \$(\d+)\.", line):
            prices[match[1][:3]] = int(match[2])
        elif match := re.fullmatch(r"\w+ buys (.*)\.", line):
            total = sum(
                (Fraction(int(n) * prices[w[:3]]) for n, w in re.findall(r"(\d+) (\w+)", match[1])), Fraction(0)
            )
        elif match := re.search(r"gives a (\d+)% discount", line):
            total *= 1 - Fraction(int(match[1]), 100)
        elif match := re.search(r"another \$(\d+) off", line):
            total -= int(match[1])
        elif match := re.search(r"pays with \$(\d+)", line):
            total = int(match[1]) - total
        else:
            raise AssertionError(line)
    assert ("change" in question) == any("pays with" in line for line in lines)
    return total


def travel(lines: list[str], question: str) -> Fraction:
    legs = [(int(h), int(v)) for h, v in re.findall(r"travels for (\d+) hours? at (\d+)", " ".join(lines))]
    distance = sum(hours * speed for hours, speed in legs)
    if back := re.search(r"returns by the same route at a constant (\d+)", lines[-1]):
        return Fraction(distance, int(back[1]))
    if rest := re.search(r"stops for (\d+)", lines[-1]):
        return Fraction(distance, sum(hours for hours, _ in legs) + int(rest[1]))
    assert "kilometers does" in question
    return Fraction(distance)


def production(lines: list[str], question: str) -> Fraction:
    text = " ".join(lines)
    total = Fraction(1)
    for form in (
        r"(\d+) machines\b",
        r"(?:makes|produces) (\d+) ",
        r"run for (\d+) hours? per day",
        r"for (\d+) days in a row",
    ):
        if match := re.search(form, text):
            total *= int(match[1])
    if match := re.search(r"Then (\d+)% of all", text):
        total -= total * int(match[1]) / 100
    if match := re.search(r"remaining \w+, (\d+) are kept", text):
        total -= int(match[1])
    assert total.denominator == 1
    if match := re.search(r"boxes of (\d+)", text):
        return Fraction(total // int(match[1]) if "filled" in question else total % int(match[1]))
    return total


def ages(lines: list[str], question: str) -> Fraction:
    age: dict[str, int] = {}
    while len(age) < len(lines):
        before = len(age)
        for line in lines:
            name = line.split()[0]
            if match := re.fullmatch(r"\w+ is (\d+) years old\.", line):
                age[name] = int(match[1])
            elif match := re.fullmatch(r"\w+ is (\d+) years? (older|younger) than (\w+)\.", line):
                if match[3] in age:
                    age[name] = age[match[3]] + int(match[1]) * (1 if match[2] == "older" else -1)
            elif match := re.fullmatch(r"\w+ is (.*) as old as (\w+)\.", line):
                if match[2] in age:
                    age[name] = age[match[2]] * TIMES[match[1]]
            else:
                raise AssertionError(line)
        assert len(age) > before
    people = [name for name in age if name in question]
    years = re.search(r"in (\d+) years", question)
    assert min(age.values()) > 0
    return Fraction(sum(age[name] + (int(years[1]) if years else 0) for name in people))


def shares(lines: list[str], question: str) -> Fraction:
    sold = [re.search(r"On \w+, (.*?) of the", line) for line in lines if line.startswith("On ")]
    if "at the start" in question:
        end = re.search(r"(\d+)", lines[-1])
        assert end is not None
        number = Fraction(int(end[1]))
        for match in reversed(sold):
            assert match is not None
            part = PARTS.get(match[1])
            number = number / (1 - Fraction(1, part)) if part else number + int(match[1])
        return number
    start = re.search(r"has (\d+)", lines[0])
    assert start is not None
    number = Fraction(int(start[1]))
    for match in sold:
        assert match is not None
        part = PARTS.get(match[1])
        number -= number / part if part else int(match[1])
        assert number.denominator == 1
        assert number >= 0
    return number


def savings(lines: list[str], question: str) -> Fraction:
    text = " ".join(lines)
    first = re.search(r"has \$(\d+) in", text)
    money = (int(first[1]) if first else 0) + sum(map(int, re.findall(r"puts \$(\d+) into", text)))
    weekly = sum(map(int, re.findall(r"earns \$(\d+)", text))) - sum(map(int, re.findall(r"takes \$(\d+)", text)))
    if match := re.search(r"after (\d+) weeks", question):
        for _ in range(int(match[1])):
            money += weekly
        return Fraction(money)
    goal = re.search(r"bicycle for \$(\d+)", text)
    assert goal is not None
    weeks = 0
    while money < int(goal[1]):
        money, weeks = money + weekly, weeks + 1
    return Fraction(weeks)


def seats(lines: list[str], question: str) -> Fraction:
    hall = re.search(r"has (\d+) rows of (\d+)", lines[0])
    assert hall is not None
    every = int(hall[1]) * int(hall[2])
    sold = Fraction(0)
    for line in lines[1:]:
        if match := re.search(r"show, all but (\d+) of", line):
            sold += every - int(match[1])
        elif match := re.search(r"show, (.*?) of the seats", line):
            sold += Fraction(every, PARTS[match[1]])
        elif match := re.search(r"ticket costs \$(\d+)", line):
            sold *= int(match[1])
        elif match := re.search(r"money, \$(\d+) is paid", line):
            sold -= int(match[1])
        else:
            raise AssertionError(line)
    return sold if len(lines) > 1 else Fraction(every)


SOLVERS = {
    "collection": collection,
    "shopping": shopping,
    "travel": travel,
    "production": production,
    "ages": ages,
    "shares": shares,
    "savings": savings,
    "seats": seats,
}


def test_there_is_a_solver_for_every_kind() -> None:
    assert set(SOLVERS) | set(test_story_kinds.SOLVERS) == set(KINDS)


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("steps", [1, 2, 4, 6, 9])
def test_an_independent_solver_finds_the_answer(kind: str, steps: int) -> None:
    for seed in range(60):
        item = WordProblems.generate(Random(seed), kinds=(kind,), steps=steps, size=50, distractors=0)
        text = str(item.question).removesuffix(" Give the exact value, as a fraction if necessary.")
        *story, question = sentences(text)
        assert question.endswith("?")
        answer = Fraction(item.answer)
        assert SOLVERS[kind](story, question) == answer, item.question
        assert answer >= 0
        assert not re.search(r"\b1 (hours|years|marbles|stamps)\b", str(item.question))


@pytest.mark.parametrize("kind", KINDS)
def test_distractors_do_not_change_the_answer(kind: str) -> None:
    for seed in range(20):
        plain = WordProblems.generate(Random(seed), kinds=(kind,), steps=4, size=50, distractors=0)
        more = WordProblems.generate(Random(seed), kinds=(kind,), steps=4, size=50, distractors=3)
        assert plain.answer == more.answer
        left = sentences(str(more.question))
        for sentence in sentences(str(plain.question)):
            left.remove(sentence)
        assert len(left) == 3
        assert all(re.search(r"\d", sentence) for sentence in left)
        assert str(more.question).startswith(sentences(str(plain.question))[0])

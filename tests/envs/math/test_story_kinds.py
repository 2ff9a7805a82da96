"""Verify word problems with formulas instead of the generator's simulations, and test their templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import comb, prod
from random import Random
from typing import Any

import pytest

import palestra
from palestra.envs.math.story_kinds import KINDS
from palestra.envs.math.word_problems import WordProblems

Facts = Mapping[str, int]


def series(facts: Facts, name: str) -> list[int]:
    """Return the facts name0, name1, ... in order."""
    return [value for key, value in facts.items() if re.fullmatch(rf"{name}\d+", key)]


def filling(f: Facts) -> Fraction:
    rate = sum(series(f, "pipe")) - f["drain"]
    if "minutes" in f:
        return Fraction(f["start"] + rate * f["minutes"])
    return Fraction(f["capacity"] - f["start"]) / rate


def teamwork(f: Facts) -> Fraction:
    hours = series(f, "hours")
    whole = prod(hours)
    per_hour = sum(whole // time for time in hours)
    done = f.get("alone", 0) * whole // min(hours)
    assert f.get("alone", 0) * whole % min(hours) == 0
    return Fraction(whole - done, per_hour)


def mixture(f: Facts) -> Fraction:
    pairs = list(zip(series(f, "amount"), series(f, "percent"), strict=True))
    hundredths = sum(a * p for a, p in pairs)
    total = sum(a for a, _ in pairs) + f.get("water", 0)
    return Fraction(hundredths, total) if f["percentage"] else Fraction(hundredths, 100)


def recipe(f: Facts) -> Fraction:
    needed = Fraction(series(f, "grams")[f["which"] - 1], f["servings"]) * f["guests"]
    if "package" not in f:
        return needed
    return Fraction(-((f["left"] - needed) // f["package"]))


def meeting(f: Facts) -> Fraction:
    if f["place"] == 2:
        return Fraction(f["lead"] * f["slow"], f["fast"] - f["slow"])
    # Positions: slow * t and distance - fast * (t - lead).
    time = Fraction(f["distance"] + f["fast"] * f["lead"], f["slow"] + f["fast"])
    assert time >= f["lead"]
    return time * f["slow"] if f["place"] == 1 else time


def timetable(f: Facts) -> Fraction:
    arrival = f["leaves"] + f["walk"] + f["delay"]
    wait = -(arrival - f["first"]) % f["interval"]
    return Fraction(f["walk"] + f["delay"] + wait + f["ride"] if f["ride"] else wait)


def units(f: Facts) -> Fraction:
    amounts = [v * (f["factor"] if k.startswith("large") else 1) for k, v in f.items() if re.match("small|large", k)]
    total = sum(n * a for n, a in zip(series(f, "number"), amounts, strict=True))
    return Fraction(total, 1 if f["asked"] == 1 else f["factor"])


def price_changes(f: Facts) -> Fraction:
    ups, downs = series(f, "up"), series(f, "down")
    factors = [*(100 + p for p in ups), *(100 - p for p in downs)]
    price = Fraction(f["price"] * prod(factors), 100 ** len(factors))
    return abs(price - f["price"]) if f["difference"] else price


def offers(f: Facts) -> Fraction:
    full, rest = divmod(f["number"], f["group"] + 1)
    first = Fraction(f["first"] * (full * f["group"] + rest))
    second = Fraction(f["second"] * f["number"]) * (1 - Fraction(f["percent"], 100)) + f["shipping"]
    return abs(first - second) if f["difference"] else min(first, second)


def wages(f: Facts) -> Fraction:
    total = sum(f["pay"] * day + f["extra"] * max(0, day - f["limit"]) for day in series(f, "day"))
    return total * (1 - Fraction(f["tax"], 100))


def coins(f: Facts) -> Fraction:
    return Fraction(f["value"] - f["low"] * f["number"], f["high"] - f["low"]) + f["pocket"]


def ratio(f: Facts) -> Fraction:
    parts = series(f, "part")
    owned = [Fraction(f["total"] * part, sum(parts)) for part in parts]
    owned[0] -= f.get("gift", 0)
    owned[1] += f.get("gift", 0)
    assert min(owned) >= 0
    return owned[f["first"] - 1] - (owned[f["second"] - 1] if f["second"] else 0)


def warehouse(f: Facts) -> Fraction:
    """Simulate the evenings one by one, with the stock and the number of deliveries so far."""

    def evening(day: int) -> tuple[int, int]:
        if day == 0:
            return f["start"], 0
        stock, deliveries = evening(day - 1)
        if day > 1 and stock < f["low"]:
            stock, deliveries = stock + f["delivered"], deliveries + 1
        returned = f["back"] if f["every"] and day % f["every"] == 0 else 0
        assert stock >= f["sold"]  # there is enough to sell, so the story is unambiguous
        return stock - f["sold"] + returned, deliveries

    return Fraction(evening(f["days"])[f["count"]])


def averages(f: Facts) -> Fraction:
    scores = series(f, "score")
    if f["target"]:
        return Fraction(sum(f["target"] - score for score in scores) + f["target"])
    if f["dropped"]:
        return Fraction(sum(scores) - max(scores) - min(scores), len(scores) - 2)
    return Fraction(sum(scores), len(scores))


def remainders(f: Facts) -> Fraction:
    pairs = list(zip(series(f, "row"), series(f, "left"), strict=True))
    period = prod(row for row, _ in pairs)
    fits = [x for x in range(period) if all(x % row == left for row, left in pairs)]
    return Fraction(min(x + period * ((f["low"] - x + period - 1) // period) for x in fits))


def garden(f: Facts) -> Fraction:
    length, width = f["length"], f["width"]
    if "gate" in f:
        answer = Fraction(2 * length + 2 * width - f["gate"])
    elif "border" in f:
        answer = Fraction((length + 2 * f["border"]) * (width + 2 * f["border"]) - length * width)
    else:
        answer = Fraction(length * width * 10_000, f["tile"] ** 2)
    return answer * f.get("price", 1)


def chances(f: Facts) -> Fraction:
    counts = series(f, "count")
    total, first = sum(counts), counts[0]
    pairs = comb(total, 2)
    same = sum(comb(n, 2) for n in counts)
    events = (0, same, comb(first, 2), pairs - comb(total - first, 2))
    return Fraction(events[f["event"]], pairs) if f["event"] else Fraction(first, total)


def reading(f: Facts) -> Fraction:
    days = 1
    while days * f["first"] + f["more"] * days * (days - 1) // 2 < f["pages"]:
        days += 1
    # With a break on every rest-th day, rest - 1 of every `rest` days are reading days.
    return Fraction(days + (days - 1) // (f["rest"] - 1) if f["rest"] else days)


def outfits(f: Facts) -> Fraction:
    counts = series(f, "count")
    ways = prod(counts) - (prod(counts[2:]) if f["ban"] else 0)
    return Fraction(ways // 7 if f["weeks"] else ways)


def growth(f: Facts) -> Fraction:
    def after(years: int) -> int:
        factor: int = f["factor"] ** years
        return f["count"] * factor - f["removed"] * (factor - 1) // (f["factor"] - 1)

    if f["limit"]:
        return Fraction(next(years for years in range(100) if after(years) >= f["limit"]))
    return Fraction(after(f["years"]))


def packing(f: Facts) -> Fraction:
    trips = -(-f["total"] // f["load"])
    breaks = (trips - 1) // f["every"] if f["every"] else 0
    return Fraction(trips if f["trips"] else trips * f["minutes"] + breaks * f["pause"])


SOLVERS: dict[str, Callable[[Facts], Fraction]] = {
    function.__name__: function
    for function in (
        *(filling, teamwork, mixture, recipe, meeting, timetable, units, price_changes, offers, wages, coins, ratio),
        *(warehouse, averages, remainders, garden, chances, reading, outfits, growth, packing),
    )
}
HIDDEN = {"units": {"factor"}, "timetable": {"first", "leaves"}}  # facts that are not written as plain numbers


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 6, 12])
def test_a_formula_gives_the_same_answer(kind: str, steps: int) -> None:
    for seed in range(60):
        story = KINDS[kind](Random(seed), steps, (10, 50, 100, 5000)[seed % 4])
        text = " ".join([*story.sentences, story.question])
        assert SOLVERS[kind](story.facts) == story.answer, text
        assert story.answer >= 0
        numbers = set(map(int, re.findall(r"\d+", text)))
        missing = {name for name, value in story.facts.items() if value > 9 and value not in numbers}
        assert missing <= HIDDEN.get(kind, set()), text
        assert not re.search(r"\b1 (hours|years|minutes|pages|liters|meters|stickers|grams|days)\b|  |\{", text), text
        assert all(
            (sentence.endswith(".") and sentence[0].isupper()) or sentence[0].isdigit() for sentence in story.sentences
        )


def test_kinds_and_phrasings() -> None:
    assert len(KINDS) >= 24
    for kind in KINDS:
        templates = {KINDS[kind](Random(seed), 4, 60).template for seed in range(300)}
        assert len(templates) >= 6, kind


def test_templates_ignore_names_things_and_numbers() -> None:
    first = KINDS["coins"](Random(0), 2, 60)
    names = {story.template for seed in range(400) if (story := KINDS["coins"](Random(seed), 2, 60))}
    assert first.template in names
    assert len(names) <= 8  # three sentences with two phrasings each
    assert not any(re.search(r"\d|Mia|Omar|purse|jar", template) for template in names)


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_templates_of_the_two_splits_are_disjoint(level: str) -> None:
    kinds: dict[str, set[str]] = {}
    ids: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env: Any = WordProblems(level=level, split=split)
        infos = [env.reset(seed=seed)[1] for seed in range(400)]
        ids[split] = {info["task_id"] for info in infos}
        kinds[split] = {info["item"] for info in infos}
    assert not ids["train"] & ids["test"]
    assert kinds["train"] == set(KINDS)
    assert len(kinds["test"]) >= 20
    assert len(ids["test"]) > 40


def test_distractors_do_not_change_the_split() -> None:
    plain = palestra.make("math:WordProblems-v0-easy", split="test", distractors=0)
    more = palestra.make("math:WordProblems-v0-easy", split="test", distractors=3)
    for seed in range(30):
        assert plain.reset(seed=seed)[1]["task_id"] == more.reset(seed=seed)[1]["task_id"]

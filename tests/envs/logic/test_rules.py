"""Labels and depths found again by a reader that has nothing but the English."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from random import Random
from typing import NamedTuple

import pytest

import palestra
from palestra.envs.logic.build import question
from palestra.envs.logic.rules import Rules, in_english
from palestra.envs.logic.theory import Literal, Rule, depths
from palestra.errors import BadValue

VERBS = {"chase": "chases", "like": "likes", "see": "sees", "visit": "visits", "need": "needs", "follow": "follows"}
SOMEBODY = ("someone", "anyone", "something", "anything", "they", "it")


class Claim(NamedTuple):
    who: str
    what: str
    so: bool


class Read(NamedTuple):
    facts: set[Claim]
    rules: list[tuple[list[Claim], Claim]]
    claim: Claim


def claim(text: str) -> Claim:
    match = re.fullmatch(r"((?:[Tt]he )?\w+) (is|are|do|does)( not)? (.*)", text)
    if match is not None:
        who, verb, denied, rest = match.groups()
        if verb in ("do", "does"):
            assert denied
            first, _, whom = rest.partition(" ")
            rest = f"{VERBS[first]} {whom}"
        else:
            rest = f"is {rest}"
        return Claim(_who(who), rest, not denied)
    match = re.fullmatch(r"((?:[Tt]he )?\w+) (\w+) (.*)", text)
    assert match is not None, text
    return Claim(_who(match[1]), f"{VERBS.get(match[2], match[2])} {match[3]}", True)


def _who(text: str) -> str:
    text = text.replace("The ", "the ")
    return "*" if text.lower() in SOMEBODY else text


def rule(text: str) -> tuple[list[Claim], Claim]:
    if text.startswith("If "):
        premises, _, head = text.removeprefix("If ").rstrip(".").partition(" then ")
        return [claim(part) for part in premises.split(" and ")], claim(head)
    match = re.fullmatch(r"(?:All )?(.*) (?:people|things) are (not )?(\w+)\.", text)
    assert match is not None, text
    body = [Claim("*", f"is {word.lower()}", True) for word in match[1].split(", ")]
    return body, Claim("*", f"is {match[3]}", not match[2])


def read(text: str) -> Read:
    blocks = dict(re.findall(r"(Facts|Rules|Statement):\n(.*?)(?=\n\n)", text, re.S))
    facts = {claim(part) for part in re.split(r"(?<=\.) ", blocks["Facts"].rstrip(".") + ".") for part in [part[:-1]]}
    rules = [rule(line) for line in blocks.get("Rules", "").splitlines()]
    return Read(facts, rules, claim(blocks["Statement"].rstrip(".")))


def prove(goal: Claim, depth: int, theory: Read, closed: bool, known: dict[tuple[Claim, int], bool]) -> bool:
    """Backwards, by at most `depth` rules one after the other."""
    if goal in theory.facts:
        return True
    if depth == 0:
        return False
    if (goal, depth) not in known:
        known[goal, depth] = False
        for body, head in theory.rules:
            if head.what == goal.what and head.so == goal.so and head.who in ("*", goal.who):
                who = goal.who if head.who == "*" else None
                if all(holds(part, who, depth - 1, theory, closed, known) for part in body):
                    known[goal, depth] = True
                    break
    return known[goal, depth]


def holds(
    part: Claim, who: str | None, depth: int, theory: Read, closed: bool, known: dict[tuple[Claim, int], bool]
) -> bool:
    assert part.who != "*" or who is not None
    part = Claim(who if part.who == "*" and who else part.who, part.what, part.so)
    if closed and not part.so:
        return not prove(Claim(part.who, part.what, True), 12, theory, closed, {})
    return prove(part, depth, theory, closed, known)


def shortest(goal: Claim, theory: Read, closed: bool) -> int | None:
    known: dict[tuple[Claim, int], bool] = {}
    found = partial(prove, goal, theory=theory, closed=closed, known=known)
    return next((depth for depth in range(13) if found(depth=depth)), None)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_label_and_depth_from_the_text(depth: int, closed: bool) -> None:
    labels: Counter[tuple[str, bool]] = Counter()
    for seed in range(80):
        rng = Random(seed)
        made = question(rng, depth=depth, closed=closed, rules=6)
        theory = read(in_english(rng, made, "closed" if closed else "open") + "\n\n")
        so = shortest(theory.claim, theory, closed)
        opposite = shortest(Claim(theory.claim.who, theory.claim.what, not theory.claim.so), theory, closed)
        labels[made.label, theory.claim.so] += 1
        if closed:
            plain = so if theory.claim.so else opposite
            assert made.label == str((plain is not None) == theory.claim.so)
            assert plain in (None, depth)
        else:
            assert made.label == ("True" if so is not None else "False" if opposite is not None else "Unknown")
            assert so is None or opposite is None
            assert {so, opposite} <= {None, depth}
    assert len(labels) == (4 if closed else 6)  # every answer, for plain statements and for denials
    assert min(labels.values()) >= 5


@pytest.mark.parametrize("closed", [True, False])
def test_one_fact_more_would_prove_what_does_not_follow(closed: bool) -> None:
    idle = 0
    for seed in range(60):
        made = question(Random(seed), depth=3, closed=closed, rules=6)
        known = depths(made.facts, made.rules, made.entities, closed=closed)
        either = (made.statement, made.statement.denied())
        if any(literal in known for literal in either):
            continue
        idle += 1
        words = {part.predicate for each in made.rules for part in each.body}
        extra = [Literal(who, what, so) for who in made.entities for what in words for so in (True, False)]
        reached = [depths([*made.facts, one], made.rules, made.entities, closed=closed) for one in extra]
        assert any(found.get(literal) == 3 for found in reached for literal in either)
    assert idle > 10


def test_the_chainer_counts_the_shortest_proof() -> None:
    is_a, is_b, is_c = (Literal("", f"is {word}") for word in "abc")
    rules = [Rule((is_a,), is_b), Rule((is_b,), is_c), Rule((Literal("", "is d", False),), is_c)]
    facts = [Literal("Bob", "is a"), Literal("Bob", "is d"), Literal("Eve", "is a")]
    known = depths(facts, rules, ["Bob", "Eve"], closed=True)
    assert known[Literal("Bob", "is c")] == 2
    assert known[Literal("Eve", "is c")] == 1  # nothing says that Eve is d
    assert Literal("Eve", "is c") in depths(facts, rules, ["Bob", "Eve"], closed=False)
    assert depths(facts, rules, ["Bob", "Eve"], closed=False)[Literal("Eve", "is c")] == 2


def test_how_much_is_said_does_not_tell_the_answer() -> None:
    """What can be counted without reading is the same on average, whether something follows or not."""
    counts: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}
    for seed in range(800):
        made = question(Random(seed), depth=2, closed=True, rules=6)
        said = sum(fact.subject == made.statement.subject for fact in made.facts)
        follows = (made.label == "True") == made.statement.positive
        counts[follows].append((len(made.facts), len(made.rules), said))
    for i in range(3):
        yes, no = (sum(row[i] for row in rows) / len(rows) for rows in (counts[True], counts[False]))
        assert abs(yes - no) < 0.35, i


def test_answers_and_keywords() -> None:
    env = palestra.make("logic:Rules-v0-d2-open", max_attempts=2)
    env.reset(seed=1)
    step = env.step(r"\boxed{perhaps}")
    assert "one of True, False, Unknown" in str(step.observation)
    assert env.step(str(env.expert_action()).lower()).info["success"]
    for form in ("{}", " {}. ", r"\text{{{}}}"):
        env.reset(seed=1)
        assert env.step(f"\\boxed{{{form.format(env.unwrapped.item.answer)}}}").info["success"]  # type: ignore[attr-defined]
    with pytest.raises(BadValue, match="closed, open"):
        Rules(world="flat")
    with pytest.raises(BadValue, match="depth is a whole number from 0 to 8"):
        Rules(depth=9)
    for depth in range(9):
        assert Rules(depth=depth, rules=12).reset(seed=depth)

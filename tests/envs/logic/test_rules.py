"""Verify labels and proof depths with an independent parser and prover for the English text."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from random import Random
from typing import NamedTuple

import pytest

import palestra
from palestra.envs.logic.generator import generate_question
from palestra.envs.logic.rules import Rules, describe
from palestra.envs.logic.theory import Literal, Rule, proof_depths
from palestra.errors import BadValue

VERBS = {"chase": "chases", "like": "likes", "see": "sees", "visit": "visits", "need": "needs", "follow": "follows"}
SOMEBODY = ("someone", "anyone", "something", "anything", "they", "it")


class Claim(NamedTuple):
    who: str
    what: str
    so: bool


class ParsedTheory(NamedTuple):
    facts: set[Claim]
    rules: list[tuple[list[Claim], Claim]]
    claim: Claim


def claim(text: str) -> Claim:
    match = re.fullmatch(r"((?:[Tt]he )?\w+) (is|are|do|does)( not)? (.*)", text)
    if match is not None:
        who, verb, negation, rest = match.groups()
        if verb in ("do", "does"):
            assert negation
            first, _, whom = rest.partition(" ")
            rest = f"{VERBS[first]} {whom}"
        else:
            rest = f"is {rest}"
        return Claim(_who(who), rest, not negation)
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


def parse(text: str) -> ParsedTheory:
    blocks = dict(re.findall(r"(Facts|Rules|Statement):\n(.*?)(?=\n\n)", text, re.S))
    facts = {claim(part) for part in re.split(r"(?<=\.) ", blocks["Facts"].rstrip(".") + ".") for part in [part[:-1]]}
    rules = [rule(line) for line in blocks.get("Rules", "").splitlines()]
    return ParsedTheory(facts, rules, claim(blocks["Statement"].rstrip(".")))


def prove(goal: Claim, depth: int, theory: ParsedTheory, closed: bool, cache: dict[tuple[Claim, int], bool]) -> bool:
    """Prove a goal by backward chaining with at most `depth` rules in sequence."""
    if goal in theory.facts:
        return True
    if depth == 0:
        return False
    if (goal, depth) not in cache:
        cache[goal, depth] = False
        for body, head in theory.rules:
            if head.what == goal.what and head.so == goal.so and head.who in ("*", goal.who):
                who = goal.who if head.who == "*" else None
                if all(holds(part, who, depth - 1, theory, closed, cache) for part in body):
                    cache[goal, depth] = True
                    break
    return cache[goal, depth]


def holds(
    part: Claim, who: str | None, depth: int, theory: ParsedTheory, closed: bool, cache: dict[tuple[Claim, int], bool]
) -> bool:
    assert part.who != "*" or who is not None
    part = Claim(who if part.who == "*" and who else part.who, part.what, part.so)
    if closed and not part.so:
        return not prove(Claim(part.who, part.what, True), 12, theory, closed, {})
    return prove(part, depth, theory, closed, cache)


def shortest(goal: Claim, theory: ParsedTheory, closed: bool) -> int | None:
    cache: dict[tuple[Claim, int], bool] = {}
    provable = partial(prove, goal, theory=theory, closed=closed, cache=cache)
    return next((depth for depth in range(13) if provable(depth=depth)), None)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_label_and_depth_from_the_text(depth: int, closed: bool) -> None:
    labels: Counter[tuple[str, bool]] = Counter()
    for seed in range(80):
        rng = Random(seed)
        question = generate_question(rng, depth=depth, closed=closed, rules=6)
        theory = parse(describe(rng, question, "closed" if closed else "open") + "\n\n")
        so = shortest(theory.claim, theory, closed)
        opposite = shortest(Claim(theory.claim.who, theory.claim.what, not theory.claim.so), theory, closed)
        labels[question.label, theory.claim.so] += 1
        if closed:
            plain = so if theory.claim.so else opposite
            assert question.label == str((plain is not None) == theory.claim.so)
            assert plain in (None, depth)
        else:
            assert question.label == ("True" if so is not None else "False" if opposite is not None else "Unknown")
            assert so is None or opposite is None
            assert {so, opposite} <= {None, depth}
    assert len(labels) == (4 if closed else 6)  # every answer occurs for positive and negated statements
    assert min(labels.values()) >= 5


@pytest.mark.parametrize("closed", [True, False])
def test_one_more_fact_would_prove_a_statement_that_does_not_follow(closed: bool) -> None:
    idle = 0
    for seed in range(60):
        question = generate_question(Random(seed), depth=3, closed=closed, rules=6)
        derived = proof_depths(question.facts, question.rules, question.entities, closed=closed)
        either = (question.statement, question.statement.negated())
        if any(literal in derived for literal in either):
            continue
        idle += 1
        words = {part.predicate for each in question.rules for part in each.body}
        extra = [Literal(who, what, so) for who in question.entities for what in words for so in (True, False)]
        reached = [
            proof_depths([*question.facts, one], question.rules, question.entities, closed=closed) for one in extra
        ]
        assert any(depths.get(literal) == 3 for depths in reached for literal in either)
    assert idle > 10


def test_the_chainer_counts_the_shortest_proof() -> None:
    is_a, is_b, is_c = (Literal("", f"is {word}") for word in "abc")
    rules = [Rule((is_a,), is_b), Rule((is_b,), is_c), Rule((Literal("", "is d", False),), is_c)]
    facts = [Literal("Bob", "is a"), Literal("Bob", "is d"), Literal("Eve", "is a")]
    derived = proof_depths(facts, rules, ["Bob", "Eve"], closed=True)
    assert derived[Literal("Bob", "is c")] == 2
    assert derived[Literal("Eve", "is c")] == 1  # in a closed world, "Eve is not d" holds
    assert Literal("Eve", "is c") in proof_depths(facts, rules, ["Bob", "Eve"], closed=False)
    assert proof_depths(facts, rules, ["Bob", "Eve"], closed=False)[Literal("Eve", "is c")] == 2


def test_surface_statistics_do_not_reveal_the_answer() -> None:
    """Verify that the average numbers of facts and rules do not depend on whether the statement follows."""
    counts: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}
    for seed in range(800):
        question = generate_question(Random(seed), depth=2, closed=True, rules=6)
        about_subject = sum(fact.subject == question.statement.subject for fact in question.facts)
        follows = (question.label == "True") == question.statement.positive
        counts[follows].append((len(question.facts), len(question.rules), about_subject))
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
    with pytest.raises(BadValue, match="depth must be a whole number from 0 to 8"):
        Rules(depth=9)
    for depth in range(9):
        assert Rules(depth=depth, rules=12).reset(seed=depth)

"""Theories around a question of chosen depth: a chain of rules that leads to it, among facts and rules that do not.

Whether the question has an answer in them is decided last, by one fact that the chain needs: it is there, or another
one is in its place. So theories of all answers look alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from palestra.envs.logic.sentences import ADJECTIVES, ANIMALS, PEOPLE, VERBS
from palestra.envs.logic.theory import ANYONE, Literal, Rule, consistent, depths

FACTS_EACH = (2, 4)  # facts about each one, unless the chain needs more


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A theory, a statement about it, and what is true of the statement."""

    entities: tuple[str, ...]
    animals: bool
    facts: tuple[Literal, ...]
    rules: tuple[Rule, ...]
    statement: Literal
    label: str  # "True", "False" or "Unknown"


def question(rng: Random, *, depth: int, closed: bool, rules: int) -> Question:
    """A question whose proof takes `depth` rules one after the other, and no fewer.

    Where nothing follows (the answer False for a plain statement in a closed world, Unknown in an open one), it would
    take that many with one more fact.
    """
    label = rng.choice(("True", "False") if closed else ("True", "False", "Unknown"))
    said_positive = rng.random() < 0.5
    while True:
        made = _attempt(rng, depth, closed, rules, label, said_positive)
        if made is not None:
            return made


def _attempt(rng: Random, depth: int, closed: bool, count: int, label: str, said_positive: bool) -> Question | None:
    animals = rng.random() < 0.5
    entities = tuple(rng.sample(ANIMALS if animals else PEOPLE, rng.randint(3, 5)))
    words = _Words(rng, entities)
    somebody = rng.choice(entities)
    # What the chain proves: in a closed world a plain fact, in an open one what is said or its denial.
    provable = label == "Unknown" or (label == "True") == said_positive or not closed
    follows = True if closed else said_positive == (label == "True")
    if label == "Unknown":
        follows = rng.random() < 0.5
    target = Literal(somebody, words.new(), follows)
    needed, chain = _chain(rng, words, target, depth, entities, closed)
    asked = Literal(somebody, target.predicate, said_positive)
    extra_rules = _asides(rng, words, chain, entities, count, closed)
    key = needed[0]  # the deepest premise: without it, the whole chain stands idle
    missing = label == "Unknown" or not provable
    used = {part.predicate for rule in (*chain, *extra_rules) for part in rule.body}
    facts = _facts(rng, words, needed, used, closed, without=key if missing else None)
    rng.shuffle(facts)
    rules = [*chain, *extra_rules]
    rng.shuffle(rules)
    made = Question(
        entities=entities, animals=animals, facts=tuple(facts), rules=tuple(rules), statement=asked, label=label
    )
    return made if _right(made, target, key, depth, closed, missing) else None


def _right(made: Question, target: Literal, key: Literal, depth: int, closed: bool, missing: bool) -> bool:
    """Whether the answer is what it was to be, and the proof as deep as asked."""
    known = depths(made.facts, made.rules, made.entities, closed=closed)
    if not consistent(known) or verdict(made.statement, known, closed=closed) != made.label:
        return False
    if not missing:
        return known.get(target) == depth
    completed = depths([*made.facts, key], made.rules, made.entities, closed=closed)
    return consistent(completed) and completed.get(target) == depth


def verdict(statement: Literal, known: dict[Literal, int], *, closed: bool) -> str:
    """What follows of a statement: in a closed world, what does not follow is not so."""
    if closed:
        follows = Literal(statement.subject, statement.predicate) in known
        return "True" if follows == statement.positive else "False"
    if statement in known:
        return "True"
    return "False" if statement.denied() in known else "Unknown"


class _Words:
    """Predicates, each handed out once, so that no rule proves by accident what another is to prove."""

    def __init__(self, rng: Random, entities: tuple[str, ...]) -> None:
        relations = [f"{verb} {entity}" for verb in VERBS for entity in entities]
        self.fresh = [f"is {word}" for word in rng.sample(ADJECTIVES, 16)] + rng.sample(
            relations, min(8, len(relations))
        )
        rng.shuffle(self.fresh)
        self.entities = entities
        self.base: list[str] = []  # those that stand in no rule's head: only facts can say them

    def new(self) -> str:
        return self.fresh.pop()

    def new_base(self) -> str:
        self.base.append(self.new())
        return self.base[-1]


def _chain(
    rng: Random, words: _Words, target: Literal, depth: int, entities: tuple[str, ...], closed: bool
) -> tuple[list[Literal], list[Rule]]:
    """Rules that lead to `target`, and the facts they need; the first fact is at the bottom."""
    rules: list[Rule] = []
    facts: list[Literal] = []
    goal = target
    for step in range(depth):
        about = goal.subject
        # The premise is about the same one, or about another, which only a rule with names can say.
        named = rng.random() < 0.25
        other = rng.choice(entities) if named else about
        positive = True if closed else rng.random() < 0.7
        last = step == depth - 1
        premise = Literal(other, words.new_base() if last else words.new(), positive)
        body = [premise]
        if rng.random() < 0.5:
            body.append(_side(rng, words, about if not named else rng.choice(entities), facts, closed))
        if rng.random() < 0.5:
            body.reverse()
        if named:
            rules.append(Rule(tuple(body), goal))
        else:
            rules.append(Rule(tuple(_general(part, about) for part in body), _general(goal, about)))
        goal = premise
    if depth == 0 and goal.predicate not in words.base:
        words.base.append(goal.predicate)
    return [goal, *facts], rules


def _side(rng: Random, words: _Words, about: str, facts: list[Literal], closed: bool) -> Literal:
    """A second premise: a fact, or in a closed world the lack of one."""
    if rng.random() < 0.4:
        denied = Literal(about, words.new_base(), False)
        if not closed:
            facts.append(denied)
        return denied
    side = Literal(about, words.new_base())
    facts.append(side)
    return side


def _general(literal: Literal, about: str) -> Literal:
    """The literal with whom the rule is about left open; what is said of others keeps its name."""
    return Literal(ANYONE, literal.predicate, literal.positive) if literal.subject == about else literal


def _asides(
    rng: Random, words: _Words, chain: list[Rule], entities: tuple[str, ...], count: int, closed: bool
) -> list[Rule]:
    """Rules around the chain, `count` in all: they use its words, and some prove the same in another way."""
    for _ in range(max(3, FACTS_EACH[1] + 3 - len(words.base))):  # so that nobody can have them all
        words.new_base()
    heads = [rule.head.predicate for rule in chain]
    rules: list[Rule] = []
    while len(chain) + len(rules) < count:
        body = [Literal(ANYONE, rng.choice(words.base + heads), closed or rng.random() < 0.7)]
        if rng.random() < 0.5:
            predicate = rng.choice(words.base)
            if predicate != body[0].predicate:
                body.append(Literal(ANYONE, predicate, rng.random() < 0.6))
        new = not heads or (rng.random() < 0.7 and len(words.fresh) > 4)
        head = Literal(ANYONE, words.new() if new else rng.choice(heads), closed or rng.random() < 0.6)
        if any(part.predicate == head.predicate for part in body):
            continue
        heads.append(head.predicate)
        if rng.random() < 0.2:
            one, two = rng.choice(entities), rng.choice(entities)
            rules.append(Rule(tuple(part.about(one) for part in body), head.about(two)))
        else:
            rules.append(Rule(tuple(body), head))
    return rules


def _facts(
    rng: Random, words: _Words, needed: list[Literal], used: set[str], closed: bool, *, without: Literal | None
) -> list[Literal]:
    """The needed facts and others, always as many. `without` one of them, there is another about the same in its place.

    What is needed of one is said of another, too, and what takes a place stands in a rule as well: so neither how often
    a word occurs nor how much is said of somebody tells the answer.
    """
    facts = list(dict.fromkeys(needed))
    key = facts[0]
    others = [entity for entity in words.entities if entity != key.subject]
    echo = Literal(rng.choice(others), key.predicate, key.positive)
    if echo not in facts and echo.denied() not in facts:
        facts.append(echo)
    for entity in words.entities:
        wanted = rng.randint(*FACTS_EACH)
        for _ in range(wanted - sum(fact.subject == entity for fact in facts)):
            free = _unsaid(words, facts, Literal(entity, ""))
            facts.append(Literal(entity, rng.choice(free), closed or rng.random() < 0.7))
    if without is not None:
        facts.remove(without)
        free = _unsaid(words, facts, without)
        elsewhere = {fact.predicate for fact in facts}
        best = max((predicate in used) + 2 * (predicate in elsewhere) for predicate in free)
        free = [word for word in free if (word in used) + 2 * (word in elsewhere) == best]
        facts.append(Literal(key.subject, rng.choice(free), key.positive))
    return facts


def _unsaid(words: _Words, facts: list[Literal], but: Literal) -> list[str]:
    """What no fact says of somebody, one more predicate left out."""
    said = {fact.predicate for fact in facts if fact.subject == but.subject} | {but.predicate}
    return [predicate for predicate in words.base if predicate not in said]

"""Generate theories that contain a proof of a given depth, hidden among irrelevant facts and rules.

If the statement must not follow, the last step replaces a fact that the proof needs with an unrelated fact. Theories
with different answers therefore look alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from palestra.envs.logic.sentences import ADJECTIVES, ANIMALS, PEOPLE, VERBS
from palestra.envs.logic.theory import ANYONE, Literal, Rule, is_consistent, proof_depths

FACTS_PER_ENTITY = (2, 4)  # minimum and maximum; an entity has more facts if the proof needs them


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Facts and rules, with a statement and its truth value."""

    entities: tuple[str, ...]
    animals: bool
    facts: tuple[Literal, ...]
    rules: tuple[Rule, ...]
    statement: Literal
    label: str  # "True", "False" or "Unknown"


def generate_question(rng: Random, *, depth: int, closed: bool, rules: int) -> Question:
    """Generate a question whose shortest proof applies `depth` rules in sequence.

    If neither the statement nor its negation can be proved, adding a single fact would make a proof of that depth
    possible. This is the case if the answer is Unknown or follows only from the closed-world assumption.
    """
    label = rng.choice(("True", "False") if closed else ("True", "False", "Unknown"))
    positive = rng.random() < 0.5
    while True:
        question = _attempt(rng, depth, closed, rules, label, positive)
        if question is not None:
            return question


def _attempt(rng: Random, depth: int, closed: bool, count: int, label: str, positive: bool) -> Question | None:
    animals = rng.random() < 0.5
    entities = tuple(rng.sample(ANIMALS if animals else PEOPLE, rng.randint(3, 5)))
    words = _Vocabulary(rng, entities)
    subject = rng.choice(entities)
    # In a closed world, the chain proves a positive literal. In an open world, it proves the statement or its negation.
    provable = label == "Unknown" or (label == "True") == positive or not closed
    follows = True if closed else positive == (label == "True")
    if label == "Unknown":
        follows = rng.random() < 0.5
    target = Literal(subject, words.new(), follows)
    needed, chain = _chain(rng, words, target, depth, entities, closed)
    statement = Literal(subject, target.predicate, positive)
    extra_rules = _extra_rules(rng, words, chain, entities, count, closed)
    key = needed[0]  # the deepest premise, which every proof along the chain needs
    missing = label == "Unknown" or not provable
    used = {part.predicate for rule in (*chain, *extra_rules) for part in rule.body}
    facts = _facts(rng, words, needed, used, closed, without=key if missing else None)
    rng.shuffle(facts)
    rules = [*chain, *extra_rules]
    rng.shuffle(rules)
    question = Question(
        entities=entities, animals=animals, facts=tuple(facts), rules=tuple(rules), statement=statement, label=label
    )
    return question if _is_valid(question, target, key, depth, closed, missing) else None


def _is_valid(question: Question, target: Literal, key: Literal, depth: int, closed: bool, missing: bool) -> bool:
    """Return whether the question has the intended answer and proof depth."""
    derived = proof_depths(question.facts, question.rules, question.entities, closed=closed)
    if not is_consistent(derived) or truth_value(question.statement, derived, closed=closed) != question.label:
        return False
    if not missing:
        return derived.get(target) == depth
    completed = proof_depths([*question.facts, key], question.rules, question.entities, closed=closed)
    return is_consistent(completed) and completed.get(target) == depth


def truth_value(statement: Literal, derived: dict[Literal, int], *, closed: bool) -> str:
    """Return "True", "False" or "Unknown"; in a closed world, a statement that does not follow is false."""
    if closed:
        follows = Literal(statement.subject, statement.predicate) in derived
        return "True" if follows == statement.positive else "False"
    if statement in derived:
        return "True"
    return "False" if statement.negated() in derived else "Unknown"


class _Vocabulary:
    """Random predicates, each of which is returned only once, so that no two rules share a conclusion by accident."""

    def __init__(self, rng: Random, entities: tuple[str, ...]) -> None:
        relations = [f"{verb} {entity}" for verb in VERBS for entity in entities]
        self.fresh = [f"is {word}" for word in rng.sample(ADJECTIVES, 16)] + rng.sample(
            relations, min(8, len(relations))
        )
        rng.shuffle(self.fresh)
        self.entities = entities
        self.base: list[str] = []  # predicates that are not the conclusion of any rule

    def new(self) -> str:
        return self.fresh.pop()

    def new_base(self) -> str:
        self.base.append(self.new())
        return self.base[-1]


def _chain(
    rng: Random, words: _Vocabulary, target: Literal, depth: int, entities: tuple[str, ...], closed: bool
) -> tuple[list[Literal], list[Rule]]:
    """Return the facts and rules that prove `target`; the first fact is the deepest premise."""
    rules: list[Rule] = []
    facts: list[Literal] = []
    goal = target
    for step in range(depth):
        about = goal.subject
        # If `named`, the premise may have a different subject than the goal, so the rule names its subjects.
        named = rng.random() < 0.25
        other = rng.choice(entities) if named else about
        positive = True if closed else rng.random() < 0.7
        last = step == depth - 1
        premise = Literal(other, words.new_base() if last else words.new(), positive)
        body = [premise]
        if rng.random() < 0.5:
            body.append(_second_premise(rng, words, about if not named else rng.choice(entities), facts, closed))
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


def _second_premise(rng: Random, words: _Vocabulary, about: str, facts: list[Literal], closed: bool) -> Literal:
    """Sample a second premise, which is a new fact or, in a closed world, the negation of an unprovable literal."""
    if rng.random() < 0.4:
        negated = Literal(about, words.new_base(), False)
        if not closed:
            facts.append(negated)
        return negated
    premise = Literal(about, words.new_base())
    facts.append(premise)
    return premise


def _general(literal: Literal, about: str) -> Literal:
    """Return the literal with its subject replaced by ANYONE if the subject is `about`, else unchanged."""
    return Literal(ANYONE, literal.predicate, literal.positive) if literal.subject == about else literal


def _extra_rules(
    rng: Random, words: _Vocabulary, chain: list[Rule], entities: tuple[str, ...], count: int, closed: bool
) -> list[Rule]:
    """Generate irrelevant rules until there are `count` rules in total.

    The new rules use predicates from the chain, and some have the same conclusions as rules in the chain.
    """
    for _ in range(max(3, FACTS_PER_ENTITY[1] + 3 - len(words.base))):  # so that every entity has unused predicates
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
            rules.append(Rule(tuple(part.bind(one) for part in body), head.bind(two)))
        else:
            rules.append(Rule(tuple(body), head))
    return rules


def _facts(
    rng: Random, words: _Vocabulary, needed: list[Literal], used: set[str], closed: bool, *, without: Literal | None
) -> list[Literal]:
    """Return the needed facts and random facts; if `without` is given, replace it with a fact about the same subject.

    The first needed fact's predicate also occurs in a fact about another entity, and the replacement's predicate also
    occurs in rules and other facts if possible. Therefore, neither word frequencies nor the number of facts about an
    entity reveal the answer.
    """
    facts = list(dict.fromkeys(needed))
    key = facts[0]
    others = [entity for entity in words.entities if entity != key.subject]
    echo = Literal(rng.choice(others), key.predicate, key.positive)
    if echo not in facts and echo.negated() not in facts:
        facts.append(echo)
    for entity in words.entities:
        count = rng.randint(*FACTS_PER_ENTITY)
        for _ in range(count - sum(fact.subject == entity for fact in facts)):
            free = _unused_predicates(words, facts, Literal(entity, ""))
            facts.append(Literal(entity, rng.choice(free), closed or rng.random() < 0.7))
    if without is not None:
        facts.remove(without)
        free = _unused_predicates(words, facts, without)
        elsewhere = {fact.predicate for fact in facts}
        best = max((predicate in used) + 2 * (predicate in elsewhere) for predicate in free)
        free = [word for word in free if (word in used) + 2 * (word in elsewhere) == best]
        facts.append(Literal(key.subject, rng.choice(free), key.positive))
    return facts


def _unused_predicates(words: _Vocabulary, facts: list[Literal], excluded: Literal) -> list[str]:
    """Return the predicates that are not used in `excluded` or in any fact about its subject."""
    used = {fact.predicate for fact in facts if fact.subject == excluded.subject} | {excluded.predicate}
    return [predicate for predicate in words.base if predicate not in used]

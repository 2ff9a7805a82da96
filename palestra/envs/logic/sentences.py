"""Convert literals and rules into English sentences."""

from __future__ import annotations

from random import Random

from palestra.envs.logic.theory import ANYONE, Literal, Rule

PEOPLE = ("Anne", "Bob", "Charlie", "Dave", "Erin", "Fiona", "Gary", "Harry")
ANIMALS = (
    "the bear",
    "the cat",
    "the cow",
    "the dog",
    "the lion",
    "the mouse",
    "the rabbit",
    "the tiger",
    "the squirrel",
)
ADJECTIVES = (
    *(
        "big",
        "blue",
        "cold",
        "furry",
        "green",
        "kind",
        "nice",
        "quiet",
        "red",
        "rough",
        "round",
        "smart",
        "white",
        "young",
    ),
    *(
        "sad",
        "fast",
        "calm",
        "proud",
        "brave",
        "lazy",
        "old",
        "small",
        "strong",
        "wise",
        "loud",
        "happy",
        "gentle",
        "shy",
    ),
)
VERBS = {"chases": "chase", "likes": "like", "sees": "see", "visits": "visit", "needs": "need", "follows": "follow"}


def describe_fact(literal: Literal) -> str:
    """Return a fact as a sentence, such as `Anne is kind.` or `The bear does not chase Bob.`"""
    text = _clause(literal.subject, literal, plural=False)
    return f"{text[0].upper()}{text[1:]}."


def describe_rule(rng: Random, rule: Rule, *, animals: bool) -> str:
    """Return a rule as a sentence in a random form, such as `If someone is ...` or `All ... people are ...`."""
    body, head = list(rule.body), rule.head
    only_adjectives = all(
        part.subject == ANYONE and part.positive and part.predicate.startswith("is ") for part in body
    ) and head.predicate.startswith("is ")
    if rule.is_general() and only_adjectives and rng.random() < 0.5:
        kind = "things" if animals else "people"
        words = ", ".join(part.predicate.removeprefix("is ") for part in body)
        ends = f"{'are' if head.positive else 'are not'} {head.predicate.removeprefix('is ')}."
        if len(body) == 1 and rng.random() < 0.5:
            return f"All {words} {kind} {ends}"
        return f"{words[0].upper()}{words[1:]} {kind} {ends}"
    someone = rng.choice(("something", "anything")) if animals else rng.choice(("someone", "anyone"))
    if rule.is_general():
        first = sorted(body, key=lambda part: part.subject != ANYONE)  # clauses about `someone` come first
        parts = []
        for i, part in enumerate(first):
            if part.subject == ANYONE:
                parts.append(
                    _clause(someone if i == 0 else ("it" if animals else "they"), part, plural=i > 0 and not animals)
                )
            else:
                parts.append(_clause(part.subject, part, plural=False))
        ends = _clause("it" if animals else "they", head, plural=not animals)
    else:
        parts = [_clause(part.subject, part, plural=False) for part in body]
        ends = _clause(head.subject, head, plural=False)
    return f"If {' and '.join(parts)} then {ends}."


def _clause(subject: str, literal: Literal, *, plural: bool) -> str:
    verb, _, rest = literal.predicate.partition(" ")
    if verb == "is":
        be = "are" if plural else "is"
        return f"{subject} {be} {rest}" if literal.positive else f"{subject} {be} not {rest}"
    if literal.positive:
        return f"{subject} {VERBS[verb] if plural else verb} {rest}"
    return f"{subject} {'do' if plural else 'does'} not {VERBS[verb]} {rest}"

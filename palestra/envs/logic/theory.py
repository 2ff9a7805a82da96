"""Facts and rules, and what follows from them: a forward chainer that knows the depth of every proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ANYONE = ""  # the subject of a literal that holds of whoever the rule is about


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """Something said of somebody: `Anne is kind`, `the bear does not chase Bob`."""

    subject: str  # ANYONE in rules
    predicate: str  # "is kind", "chases Bob"
    positive: bool = True

    def about(self, somebody: str) -> Literal:
        return Literal(self.subject or somebody, self.predicate, self.positive)

    def denied(self) -> Literal:
        return Literal(self.subject, self.predicate, not self.positive)


@dataclass(frozen=True, slots=True)
class Rule:
    body: tuple[Literal, ...]
    head: Literal

    def general(self) -> bool:
        return not self.head.subject

    def grounded(self, entities: Sequence[str]) -> list[Rule]:
        """One rule for each it may be about."""
        if not any(literal.subject == ANYONE for literal in (*self.body, self.head)):
            return [self]
        return [
            Rule(tuple(literal.about(entity) for literal in self.body), self.head.about(entity)) for entity in entities
        ]


def depths(
    facts: Iterable[Literal], rules: Sequence[Rule], entities: Sequence[str], *, closed: bool
) -> dict[Literal, int]:
    """Every literal that follows, with the depth of its shortest proof.

    Facts have the depth 0, a rule adds 1 to that of its deepest premise.

    In a `closed` world, "not" in a rule's body means that the opposite does not follow; whatever is denied so must not
    be the head of a rule, which makes the meaning plain. In an open world "not" has to follow itself, from facts or
    rules.
    """
    known = dict.fromkeys(facts, 0)
    grounded = [ground for rule in rules for ground in rule.grounded(entities)]
    depth = 0
    while True:
        depth += 1
        found = set()
        for rule in grounded:
            if rule.head not in known and all(_holds(literal, known, closed=closed) for literal in rule.body):
                found.add(rule.head)
        if not found:
            return known
        known.update(dict.fromkeys(sorted(found), depth))


def _holds(literal: Literal, known: Mapping[Literal, int], *, closed: bool) -> bool:
    if closed and not literal.positive:
        return literal.denied() not in known
    return literal in known


def consistent(known: Mapping[Literal, int]) -> bool:
    """Whether nothing is both so and not so."""
    return not any(literal.denied() in known for literal in known)

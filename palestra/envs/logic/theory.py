"""Facts, rules, and forward chaining that records the depth of every proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ANYONE = ""  # placeholder subject in rules that apply to any entity


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """A possibly negated statement about a subject, such as `Anne is kind` or `the bear does not chase Bob`."""

    subject: str  # ANYONE in a rule that applies to any entity
    predicate: str  # for example "is kind" or "chases Bob"
    positive: bool = True

    def bind(self, entity: str) -> Literal:
        """Return the literal with ANYONE replaced by `entity`."""
        return Literal(self.subject or entity, self.predicate, self.positive)

    def negated(self) -> Literal:
        return Literal(self.subject, self.predicate, not self.positive)


@dataclass(frozen=True, slots=True)
class Rule:
    body: tuple[Literal, ...]
    head: Literal

    def is_general(self) -> bool:
        return not self.head.subject

    def grounded(self, entities: Sequence[str]) -> list[Rule]:
        """Return one instance of the rule per entity to which it may apply."""
        if not any(literal.subject == ANYONE for literal in (*self.body, self.head)):
            return [self]
        return [
            Rule(tuple(literal.bind(entity) for literal in self.body), self.head.bind(entity)) for entity in entities
        ]


def proof_depths(
    facts: Iterable[Literal], rules: Sequence[Rule], entities: Sequence[str], *, closed: bool
) -> dict[Literal, int]:
    """Return every literal that follows from the facts and rules, with the depth of its shortest proof.

    Facts have depth 0; a rule adds 1 to the depth of its deepest premise.

    In a `closed` world, "not" in the body of a rule means that the positive literal does not follow. To keep the
    semantics unambiguous, such a literal must not be the head of a rule. In an open world, the negated literal itself
    must follow.
    """
    derived = dict.fromkeys(facts, 0)
    grounded = [ground for rule in rules for ground in rule.grounded(entities)]
    depth = 0
    while True:
        depth += 1
        new = set()
        for rule in grounded:
            if rule.head not in derived and all(_holds(literal, derived, closed=closed) for literal in rule.body):
                new.add(rule.head)
        if not new:
            return derived
        derived.update(dict.fromkeys(sorted(new), depth))


def _holds(literal: Literal, derived: Mapping[Literal, int], *, closed: bool) -> bool:
    if closed and not literal.positive:
        return literal.negated() not in derived
    return literal in derived


def is_consistent(derived: Mapping[Literal, int]) -> bool:
    """Return whether there is no literal that follows together with its negation."""
    return not any(literal.negated() in derived for literal in derived)

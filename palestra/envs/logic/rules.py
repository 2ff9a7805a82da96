"""Deduction tasks: decide whether a statement follows from generated facts and rules in English."""

from __future__ import annotations

from random import Random
from typing import Any, Unpack

from palestra.envs.logic.generator import Question, generate_question
from palestra.envs.logic.sentences import describe_fact, describe_rule
from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.envs.tasks.generated import check_int
from palestra.errors import BadValue
from palestra.grading import Grade
from palestra.parsing import plain

WORLDS = ("closed", "open")
MAX_DEPTH = 8


class Rules(TaskEnv):
    """Deduction from rules, in the style of RuleTaker.

    `depth` is the number of rules that must be applied in sequence. `rules` is the total number of rules, unless
    `depth` requires more. If `world` is "closed", a statement that does not follow is false; if it is "open", the
    statement is unknown unless its negation follows. Half of the statements are negated, and all answers are equally
    frequent for negated and positive statements. There are millions of different items at every depth.
    """

    def __init__(
        self, *, depth: int = 2, world: str = "closed", rules: int = 6, **options: Unpack[TaskOptions]
    ) -> None:
        check_int("depth", depth, 0, MAX_DEPTH)
        check_int("rules", rules, 1, 12)
        if world not in WORLDS:
            raise BadValue(f"world must be one of {', '.join(WORLDS)}; got {world!r}")
        super().__init__(**options)
        self.depth, self.world, self.rules = depth, world, rules

    @property
    def answers(self) -> tuple[str, ...]:
        return ("True", "False") if self.world == "closed" else ("True", "False", "Unknown")

    def draw(self, options: dict[str, Any]) -> Item:  # noqa: ARG002  # this task accepts no reset options
        question = generate_question(self.rng, depth=self.depth, closed=self.world == "closed", rules=self.rules)
        return Item(question=describe(self.rng, question, self.world), answer=question.label, key=f"depth {self.depth}")

    def grade(self, answer: str) -> Grade:
        label = plain(answer).lower()
        gold = self.item.answer
        if label == gold.lower():
            return Grade(correct=True, score=1.0, why=f"the answer is {gold}")
        if label not in map(str.lower, self.answers):
            hint = f"The answer must be one of {', '.join(self.answers)}."
            return Grade(
                correct=False, score=0.0, why=f"not a possible answer; the correct answer is {gold}", hint=hint
            )
        return Grade(correct=False, score=0.0, why=f"answered {label.capitalize()}, but the correct answer is {gold}")

    def random_answer(self) -> str:
        return self.player_rng.choice(self.answers)

    def example_answer(self) -> str:
        return "False"


def describe(rng: Random, question: Question, world: str) -> str:
    """Return the facts, the rules and the statement in English, with an explanation of the possible answers."""
    facts = " ".join(map(describe_fact, question.facts))
    rules = "\n".join(describe_rule(rng, rule, animals=question.animals) for rule in question.rules)
    if world == "closed":
        instruction = (
            "Is the statement true or false? Anything that does not follow from the facts and rules counts as false, "
            "and its negation as true. This also applies to conditions with 'not' in a rule. Answer True or False."
        )
    else:
        instruction = (
            "Is the statement true or false, or is it unknown because neither follows from the facts and rules? A "
            "statement is not false just because it is not mentioned. Answer True, False or Unknown."
        )
    head = f"Facts:\n{facts}\n\n" + (f"Rules:\n{rules}\n\n" if question.rules else "")
    return f"{head}Statement:\n{describe_fact(question.statement)}\n\n{instruction}"

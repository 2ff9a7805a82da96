"""Rules: facts and rules in English, and a statement that follows from them or does not."""

from __future__ import annotations

from random import Random
from typing import Any, Unpack

from palestra.envs.logic.build import Question, question
from palestra.envs.logic.sentences import fact, rule
from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.envs.tasks.generated import check_whole
from palestra.errors import BadValue
from palestra.grading import Grade

WORLDS = ("closed", "open")
DEEPEST = 8


class Rules(TaskEnv):
    """Rule-taking in RuleTaker's manner.

    `depth` is the number of rules that have to be applied one after the other, `rules` how many there are, if the depth
    does not need more. In the "closed" `world` whatever does not follow is false; in the "open" one it is unknown. Half
    of the statements are denials, and all answers are equally frequent among denials and plain statements alike. There
    are millions of different items at every depth.
    """

    def __init__(
        self, *, depth: int = 2, world: str = "closed", rules: int = 6, **options: Unpack[TaskOptions]
    ) -> None:
        check_whole("depth", depth, 0, DEEPEST)
        check_whole("rules", rules, 1, 12)
        if world not in WORLDS:
            raise BadValue(f"world is one of {', '.join(WORLDS)}, got {world!r}")
        super().__init__(**options)
        self.depth, self.world, self.rules = depth, world, rules

    @property
    def answers(self) -> tuple[str, ...]:
        return ("True", "False") if self.world == "closed" else ("True", "False", "Unknown")

    def draw(self, options: dict[str, Any]) -> Item:  # noqa: ARG002  # there is nothing to choose but the seed
        made = question(self.rng, depth=self.depth, closed=self.world == "closed", rules=self.rules)
        return Item(question=in_english(self.rng, made, self.world), answer=made.label, key=f"depth {self.depth}")

    def grade(self, answer: str) -> Grade:
        said = answer.strip().strip(".").lower()
        said = said.removeprefix("\\text{").removesuffix("}")
        gold = self.item.answer
        if said == gold.lower():
            return Grade(correct=True, score=1.0, why=f"it is {gold}")
        if said not in map(str.lower, self.answers):
            hint = f"The answer is one of {', '.join(self.answers)}."
            return Grade(correct=False, score=0.0, why=f"it is {gold}; that was none of the answers", hint=hint)
        return Grade(correct=False, score=0.0, why=f"it is {gold}, not {said.capitalize()}")

    def random_answer(self) -> str:
        return self.player_rng.choice(self.answers)

    def example_answer(self) -> str:
        return "False"


def in_english(rng: Random, made: Question, world: str) -> str:
    facts = " ".join(map(fact, made.facts))
    rules = "\n".join(rule(rng, given, animals=made.animals) for given in made.rules)
    if world == "closed":
        ask = (
            "Is the statement true or false? Whatever does not follow from the facts and rules counts as false, and so "
            "its denial as true; in a rule, something is not so if it does not follow that it is. Answer True or False."
        )
    else:
        ask = (
            "Is the statement true or false, or does neither follow from the facts and rules? Only what they say, and "
            "what follows from it, is known; nothing is false merely because it is not said. Answer True, False or "
            "Unknown."
        )
    head = f"Facts:\n{facts}\n\n" + (f"Rules:\n{rules}\n\n" if made.rules else "")
    return f"{head}Statement:\n{fact(made.statement)}\n\n{ask}"

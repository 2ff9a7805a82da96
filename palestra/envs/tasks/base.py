r"""TaskEnv: a question, an answer, a grade - what every single-question environment shares.

A task is one file. It draws an item (`draw`), reads the answer out of a reply (`read`: the last `\boxed{}` unless it
says otherwise), grades it (`grade`), and ships two players: the expert gives the item's own answer, the random player
a well-formed guess (`random_answer`). Wrong answers may be tried again, `max_attempts` in all. With tools
(`make(..., tools=[...])`) the calls never come here: what does is graded.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.grading.base import Grade
from palestra.parsing import boxed, last_boxed
from palestra.types import Observation, Step, TextPart

LONGEST_ANSWER = 100_000  # characters; more cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question."""

    question: Observation
    answer: str  # what the expert says; graded correct
    gold: Any = None  # what the grader compares with, where that is not `answer`
    key: str = ""  # names the item in logs: a row, a generator's draw


class TaskOptions(TypedDict, total=False):
    """Keywords every task takes besides its own."""

    max_attempts: int  # 1
    success_reward: float  # 1.0
    fail_reward: float  # 0.0: a wrong answer
    format_error_reward: float  # -0.1: no answer could be read
    format_reward: float  # 0.0: for the first readable answer; a success still sums to success_reward


class TaskEnv(Env):
    """Base of the tasks; see the module's docstring for what one provides."""

    answer_name: ClassVar[str] = "answer"
    fenced_answers: ClassVar[bool] = False  # True: answers are fenced blocks, so with tools these are no calls

    inline = True  # a task whose grader waits for something says False
    shared = Env.shared | {"item"}

    item: Item
    turn: int  # attempts used
    ending: str | None = "reset"  # None while running; then "solved", "wrong" or "format"

    def __init__(
        self,
        *,
        max_attempts: int = 1,
        success_reward: float = 1.0,
        fail_reward: float = 0.0,
        format_error_reward: float = -0.1,
        format_reward: float = 0.0,
    ) -> None:
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise BadValue(f"max_attempts is a whole number from 1 up, got {max_attempts!r}")
        self.max_turns: int = max_attempts
        self.success_reward = float(success_reward)
        self.fail_reward = float(fail_reward)
        self.format_error_reward = float(format_error_reward)
        self.format_reward = float(format_reward)
        ends = (self.success_reward, self.fail_reward, self.format_error_reward)
        paid = self.format_reward
        every = [*ends, self.success_reward - paid, self.fail_reward + paid]
        self.reward_range = (min(every), max(every))

    # What a task provides.

    @abstractmethod
    def draw(self, options: dict[str, Any]) -> Item:
        """This episode's item, from `self.rng` or from what `options` name; takes the options it knows out of them."""

    @abstractmethod
    def grade(self, answer: str) -> Grade:
        """Judge an answer to `self.item`. InfrastructureError where that could not be done."""

    @abstractmethod
    def random_answer(self) -> str:
        """A well-formed guess drawn from `self.player_rng`."""

    @abstractmethod
    def example_answer(self) -> str:
        """A well-formed answer for the prompt; it must not depend on what is asked."""

    def read(self, reply: str) -> str | None:
        """The answer in a reply, or None."""
        return last_boxed(reply)

    def write(self, answer: str) -> str:
        """A reply that `read` finds `answer` in."""
        return boxed(answer)

    def format_note(self) -> str:
        """How to answer: for the prompt, and where no answer could be read."""
        return (
            f"Write your final {self.answer_name} inside \\boxed{{}}, for example {self.example_action()}. "
            "You may think first; only the last \\boxed{} of your reply counts."
        )

    # What every task gets.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        left = dict(options or {})
        seed = self.start_episode(seed)
        item = self.draw(left)
        if left:
            raise BadValue(f"{type(self).__name__} does not know these reset options: {', '.join(map(str, left))}")
        self.item = item
        self.turn = 0
        self.ending = None
        self._paid = 0.0  # of the format reward
        attempts = "1 attempt" if self.max_turns == 1 else f"{self.max_turns} attempts"
        note = f"\n\n{self.format_note()} You have {attempts}."
        info = {"seed": seed, "max_turns": self.max_turns, "suffix": "", "item": item.key}
        return _joined(item.question, note), info

    def step(self, action: str) -> Step:
        if self.ending is not None:
            self._refuse()
        if not isinstance(action, str):
            raise BadValue(f"an action is a string, got {type(action).__name__}")
        answer = self.read(action)
        if answer is None or len(answer) > LONGEST_ANSWER:
            self.turn += 1
            return self._judged(None)
        grade = self.grade(answer)  # first: where grading breaks, the attempt is not used up
        self.turn += 1
        return self._judged(grade)

    def _judged(self, grade: Grade | None) -> Step:
        left = self.max_turns - self.turn
        info: dict[str, Any] = {"turn": self.turn, "suffix": ""}
        reward = self.format_error_reward
        if grade is None:
            info["invalid"] = "format"
            said, ending = f"No {self.answer_name} could be read. {self.format_note()}", "format"
        else:
            info |= {"score": grade.score, "why": grade.why}
            gain, self._paid = self.format_reward - self._paid, self.format_reward
            if grade.correct:
                reward, ending = self.success_reward - self._paid + gain, "solved"
                said = f"That {self.answer_name} is correct."
            else:
                reward, ending = self.fail_reward + gain, "wrong"
                said = f"That {self.answer_name} is not correct.{' ' if grade.hint else ''}{grade.hint}"
        if ending != "solved" and left > 0:
            tries = "1 attempt" if left == 1 else f"{left} attempts"
            return Step(f"{said} You have {tries} left.", reward, False, False, info)
        self.ending = ending
        info |= {"success": ending == "solved", "ending": ending, "answer": self.item.answer}
        return Step(said, reward, True, False, info)

    def sample_random_action(self) -> str:
        return self.write(self.random_answer())

    def expert_action(self) -> str | None:
        return self.write(self.item.answer)

    def example_action(self) -> str:
        return self.write(self.example_answer())

    def _refuse(self) -> NoReturn:
        if self.ending == "reset":
            raise ResetNeeded("call reset() before the first step()")
        raise EpisodeOver(f"this episode is over ({self.ending}); call reset() for the next one")


def _joined(question: Observation, note: str) -> Observation:
    """The question with what every prompt ends with."""
    if isinstance(question, str):
        return question + note
    return [*question, TextPart(type="text", text=note)]

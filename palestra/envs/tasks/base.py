r"""Base class for environments with a single question: select an item, parse the answer and grade it.

A subclass selects an item (`draw`), extracts the answer from a reply (`read`, by default the last `\boxed{}` or
`<answer>`), grades it (`grade`), and generates well-formed guesses for the random player (`random_answer`). The expert
replies with the item's answer. An episode accepts up to `max_attempts` answers. With tools
(`make(..., tools=[...])`), the tool wrapper handles tool calls and passes only final answers to this class.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, not_running
from palestra.grading.base import Grade
from palestra.parsing import boxed, read_answer
from palestra.spec import check_split
from palestra.types import Observation, Step, TextPart

MAX_ANSWER_LENGTH = 100_000  # maximum number of characters; longer answers are treated as unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A question with its answer."""

    question: Observation
    answer: str  # the expert's answer, which the grader accepts
    gold: Any = None  # reference answer for the grader, if it differs from `answer`
    key: str = ""  # row or kind of question, which identifies the item in logs
    code: str = ""  # Python program that prints the answer, if there is one


class TaskOptions(TypedDict, total=False):
    """Keyword arguments accepted by every task."""

    max_attempts: int  # maximum number of answers per episode (default 1)
    success_reward: float  # reward for a correct answer (default 1.0)
    fail_reward: float  # reward for a wrong answer (default 0.0)
    format_error_reward: float  # reward for a reply without a readable answer (default -0.1)
    format_note: bool  # whether the prompt ends with instructions on the answer format (default True)
    split: str | None  # "train" or "test" restricts tasks to that part of the task space; None uses all (default)
    # Reward for the first readable answer (default 0.0); the rewards of a solved episode still sum to success_reward.
    format_reward: float


class TaskEnv(Env):
    """Base class for tasks; the module docstring lists the methods that a subclass implements."""

    answer_name: ClassVar[str] = "answer"
    fenced_answers: ClassVar[bool] = False  # whether fenced code blocks are answers instead of tool calls

    inline = True  # set to False if the grader waits for a process or a server
    expert_peeks = True  # the expert replies with the item's answer
    shared = Env.shared | {"item"}

    item: Item
    turn: int  # number of attempts used
    ending: str | None = "reset"  # None during an episode; afterwards "solved", "wrong" or "format"

    def __init__(
        self,
        *,
        max_attempts: int = 1,
        success_reward: float = 1.0,
        fail_reward: float = 0.0,
        format_error_reward: float = -0.1,
        format_reward: float = 0.0,
        split: str | None = None,
        format_note: bool = True,
    ) -> None:
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise BadValue(f"max_attempts must be a positive whole number, got {max_attempts!r}")
        self.max_turns: int = max_attempts
        self.split = check_split(split)
        self._adds_format_note = bool(format_note)
        self.success_reward = float(success_reward)
        self.fail_reward = float(fail_reward)
        self.format_error_reward = float(format_error_reward)
        self.format_reward = float(format_reward)
        final = (self.success_reward, self.fail_reward, self.format_error_reward)
        rewards = [*final, self.success_reward - self.format_reward, self.fail_reward + self.format_reward]
        self.reward_range = (min(rewards), max(rewards))

    # Methods that each task implements.

    @abstractmethod
    def draw(self, options: dict[str, Any]) -> Item:
        """Return the item for this episode, sampled with `self.rng` or selected by `options`; pop the used options."""

    @abstractmethod
    def grade(self, answer: str) -> Grade:
        """Grade an answer to `self.item`; raise InfrastructureError if grading fails."""

    @abstractmethod
    def random_answer(self) -> str:
        """Return a random well-formed answer, generated with `self.player_rng`."""

    @abstractmethod
    def example_answer(self) -> str:
        """Return a well-formed answer as an example for the prompt; it must not depend on the question."""

    def read(self, reply: str) -> str | None:
        """Return the answer in a reply, or None if there is none."""
        return read_answer(reply)

    def write(self, answer: str) -> str:
        """Return a reply from which `read` extracts `answer`."""
        return boxed(answer)

    def format_note(self) -> str:
        """Return instructions on the answer format, for the prompt and for feedback on an unreadable reply."""
        return (
            f"Write your final {self.answer_name} inside \\boxed{{}}, for example {self.example_action()}. "
            "You may think first; only the last \\boxed{} of your reply counts."
        )

    def task_key(self, item: Item) -> object:
        """Return a key that identifies an item; items with the same question are the same task."""
        return item.question

    # Methods shared by all tasks.

    def select(self, options: dict[str, Any]) -> Item:
        """Return an item from `split`."""
        return self.sample_task(lambda: self.draw(options), self.task_key, chosen=bool(options))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        remaining = dict(options or {})
        seed = self.start_episode(seed)
        item = self.select(remaining)
        if remaining:
            raise BadValue(f"unknown reset options for {type(self).__name__}: {', '.join(map(str, remaining))}")
        self.item = item
        self.turn = 0
        self.ending = None
        self._format_reward_paid = 0.0
        attempts = "1 attempt" if self.max_turns == 1 else f"{self.max_turns} attempts"
        note = f"\n\n{self.format_note()} You have {attempts}."
        info = {"seed": seed, "max_turns": self.max_turns, "suffix": "", "item": item.key, "task_id": self.task_id}
        return _append(item.question, note) if self._adds_format_note else item.question, info

    def step(self, action: str) -> Step:
        if self.ending is not None:
            raise not_running(self.ending)
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")
        answer = self.read(action)
        if answer is None or len(answer) > MAX_ANSWER_LENGTH:
            self.turn += 1
            return self._result(None)
        grade = self.grade(answer)  # `turn` is incremented afterwards, so that a grader failure does not use an attempt
        self.turn += 1
        return self._result(grade)

    def can_read(self, action: str) -> bool:
        answer = self.read(action)
        return answer is not None and len(answer) <= MAX_ANSWER_LENGTH

    def _result(self, grade: Grade | None) -> Step:
        left = self.max_turns - self.turn
        info: dict[str, Any] = {"turn": self.turn, "suffix": ""}
        reward = self.format_error_reward
        if grade is None:
            info["invalid"] = "format"
            message, ending = f"No {self.answer_name} could be read. {self.format_note()}", "format"
        else:
            info |= {"score": grade.score, "why": grade.why}
            bonus, self._format_reward_paid = self.format_reward - self._format_reward_paid, self.format_reward
            if grade.correct:
                reward, ending = self.success_reward - self._format_reward_paid + bonus, "solved"
                message = f"That {self.answer_name} is correct."
            else:
                reward, ending = self.fail_reward + bonus, "wrong"
                message = f"That {self.answer_name} is not correct.{' ' if grade.hint else ''}{grade.hint}"
        if ending != "solved" and left > 0:
            attempts = "1 attempt" if left == 1 else f"{left} attempts"
            return Step(f"{message} You have {attempts} left.", reward, False, False, info)
        self.ending = ending
        info |= {"success": ending == "solved", "ending": ending, "answer": self.item.answer}
        return Step(message, reward, True, False, info)

    def sample_random_action(self) -> str:
        return self.write(self.random_answer())

    def expert_action(self) -> str | None:
        return self.write(self.item.answer)

    def expert_code(self) -> str | None:
        return self.item.code or None

    def example_action(self) -> str:
        return self.write(self.example_answer())


def _append(question: Observation, note: str) -> Observation:
    """Append a note to the question."""
    if isinstance(question, str):
        return question + note
    return [*question, TextPart(type="text", text=note)]

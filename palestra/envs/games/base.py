r"""Base class for text games: prompt, answer parsing, turn budget and rewards.

Each game is a subclass in its own file. It generates a board with `self.rng` (`setup`), describes its rules (`rules`),
parses the player's answer (`parse`), applies the move (`play`), renders the visible state (`board`), and provides two
players (`random_move`, `expert_move`). The state of a game consists of plain attributes (numbers, strings, lists, sets
and dicts), so that forking is fast.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, not_running
from palestra.parsing import boxed, plain, read_answer, read_number_words
from palestra.spec import check_split
from palestra.types import Step

# Status of a move. `step` relies on the order: values above INVALID end the game.
ONGOING: Final = 0  # the move was applied; the game continues
INVALID: Final = 1  # the move was well-formed but broke the rules; it uses a turn and does not change the board
WON: Final = 2
LOST: Final = 3

MAX_MOVE_LENGTH = 256  # maximum number of characters inside \boxed{}; bounds the cost of parsing

_new_tuple = tuple.__new__  # twice as fast as calling Step, which matters because `step` is on the hot path


class GameOptions(TypedDict, total=False):
    """Keyword arguments accepted by every game, with the same names and defaults as in GEM."""

    success_reward: float  # reward for winning (default 1.0)
    internal_step_reward: float  # reward for a move that does not end the game (default 0.0)
    fail_reward: float  # reward for losing or running out of turns (default 0.0)
    invalid_action_reward: float  # reward for a well-formed move that breaks the rules (default 0.0)
    format_error_reward: float  # reward for an unreadable move, which ends the game (default -0.1)
    split: str | None  # "train" or "test" restricts games to that part of the task space; None uses all (default)
    partial_credit: bool  # whether to reward increases in `progress` (default False); the total for a win is unchanged


class LanguageGame(Env):
    """Base class for games; the module docstring lists the methods that a subclass implements."""

    title: ClassVar[str]  # for example "Guess the Number"
    move_name: ClassVar[str] = "move"  # name of an action in the prompt
    has_board: ClassVar[bool] = True  # False if observations have no board and the prompt depends only on the level
    levels: ClassVar[tuple[Mapping[str, Any], ...]] = ()  # predefined values for arguments that are None

    inline = True
    shared = Env.shared | {"_level"}

    max_turns: int
    turn: int  # number of turns used
    _opening: str | None = None  # cached prompt, if it is the same for every episode
    ending: str | None = "reset"  # None during an episode; afterwards "solved", "lost", "out_of_turns" or "format"

    def __init__(
        self,
        level: Mapping[str, Any],
        /,
        *,
        success_reward: float = 1.0,
        internal_step_reward: float = 0.0,
        fail_reward: float = 0.0,
        invalid_action_reward: float = 0.0,
        format_error_reward: float = -0.1,
        partial_credit: bool = False,
        split: str | None = None,
    ) -> None:
        """Store the rewards and the game's settings.

        Args:
            level: Settings for the game, including `max_turns`. Settings that are None are sampled for every episode.
        """
        self.success_reward = float(success_reward)
        self.internal_step_reward = float(internal_step_reward)
        self.fail_reward = float(fail_reward)
        self.invalid_action_reward = float(invalid_action_reward)
        self.format_error_reward = float(format_error_reward)
        self.partial_credit = partial_credit
        self.split = check_split(split)
        rewards = [self.success_reward, self.internal_step_reward, self.fail_reward]
        rewards += [self.invalid_action_reward, self.format_error_reward]
        self.reward_range = (min(rewards), max(rewards))
        self._level = level
        self._draws_level = any(value is None for value in level.values())
        self._check_level()
        for name, value in level.items():
            setattr(self, name, value)

    # Methods that each game implements.

    @abstractmethod
    def setup(self) -> None:
        """Generate the board for this episode with `self.rng`; the difficulty attributes are already set."""

    @abstractmethod
    def task_key(self) -> object:
        """Return a key that identifies the game that `setup` generated; equal keys mean the same puzzle."""

    @abstractmethod
    def rules(self) -> str:
        r"""Describe the goal, rules, feedback and move format; the prompt adds the turn budget and `\boxed{}`."""

    @abstractmethod
    def example_move(self) -> str:
        """Return a well-formed move as an example for the prompt; it must not depend on hidden state."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return the move in `text` (at most MAX_MOVE_LENGTH characters), or None if it is malformed."""

    @abstractmethod
    def play(self, move: Any) -> tuple[int, str]:
        """Apply a parsed move; return ONGOING, INVALID, WON or LOST, and a message for the player."""

    @abstractmethod
    def random_move(self) -> str:
        """Return a random well-formed move, generated with `self.player_rng`."""

    @abstractmethod
    def expert_move(self) -> str:
        """Return the expert's move, based on information that the player can see.

        The move must be deterministic, and computing it must have no visible side effects.
        """

    def board(self) -> str:
        """Return the visible state, which is appended to every observation."""
        return ""

    def solution(self) -> str:
        """Return a sentence that reveals the solution when a game ends without a win."""
        return ""

    def progress(self) -> float:
        """Return the solved fraction of the task, from 0 at the start to 1; used by `partial_credit`."""
        return 0.0

    # Methods shared by all games.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if options:
            raise BadValue(f"{self.title} accepts no reset options; got {', '.join(map(str, options))}")
        seed = self.start_episode(seed)
        self.turn = 0
        self.ending = None
        self._credit_paid = 0.0  # partial credit granted so far in this episode
        self.sample_task(self._sample, self._key)
        prompt = self._opening
        if prompt is None:
            prompt = self._prompt()
            if not (self._draws_level or self.has_board):
                self._opening = prompt
        board = self.board()
        if board:
            prompt = f"{prompt}\n\n{board}"
        return prompt, {"seed": seed, "max_turns": self.max_turns, "task_id": self.task_id, "suffix": board}

    def _sample(self) -> None:
        if self._draws_level:
            for name, value in self.draw_level().items():
                setattr(self, name, value)
        self.setup()

    def _key(self, _: None) -> object:
        return self.task_key()

    def _prompt(self) -> str:
        """Return the prompt without the board."""
        return (
            f"You are playing {self.title}.\n{self.rules()}\n\n"
            f"Write your {self.move_name} inside \\boxed{{}}, for example {self.example_action()}. You may think "
            f"first; only the last \\boxed{{}} of your reply counts, and a reply without a readable {self.move_name} "
            f"ends the game.\nYou have {self.max_turns} turns."
        )

    def step(self, action: str) -> Step:
        if self.ending is not None:
            raise not_running(self.ending)
        try:
            text = read_answer(action)
        except (AttributeError, TypeError):
            raise BadValue(f"an action must be a string, got {type(action).__name__}") from None
        turn = self.turn = self.turn + 1
        move = None if text is None or len(text) > MAX_MOVE_LENGTH else self.parse(text)
        if move is None:
            move = self._parse_marked_up(text)
            if move is None:
                message = f"no {self.move_name} could be read. {self._format_hint()}"
                return self._end("format", self.format_error_reward, message)
        status, message = self.play(move)
        if status > INVALID or turn >= self.max_turns:
            return self._finish(status, message)
        observation = f"Turn {turn} of {self.max_turns}: {message}"
        board = ""
        if self.has_board:
            board = self.board()
            if board:
                observation = f"{observation}\n{board}"
        if status == ONGOING:
            reward, info = self.internal_step_reward, {"turn": turn, "suffix": board}
        else:
            reward, info = self.invalid_action_reward, {"turn": turn, "suffix": board, "invalid": "rule"}
        if self.partial_credit:
            reward += self._partial_credit()
        return _new_tuple(Step, (observation, reward, False, False, info))

    def can_read(self, action: str) -> bool:
        text = read_answer(action)
        if text is None or len(text) > MAX_MOVE_LENGTH:
            return False
        return self.parse(text) is not None or self._parse_marked_up(text) is not None

    def _parse_marked_up(self, text: str | None) -> Any:
        r"""Parse a move that contains markup, such as `\text{up}`, or that is a number in words, else return None."""
        if text is None or len(text) > MAX_MOVE_LENGTH:
            return None
        stripped = plain(text)
        move = None if stripped == text else self.parse(stripped)
        if move is None and (number := read_number_words(stripped)) is not None:
            move = self.parse(str(number))
        return move

    def _partial_credit(self) -> float:
        """Return the partial credit for this step, which is the increase over the highest progress so far."""
        increase = max(0.0, self.progress() - self._credit_paid)
        self._credit_paid += increase
        return increase

    def _finish(self, status: int, message: str) -> Step:
        if status == WON:
            return self._end("solved", self.success_reward - self._credit_paid, message)
        reward = self.fail_reward + (self._partial_credit() if self.partial_credit else 0.0)
        if status == LOST:
            return self._end("lost", reward, message)
        step = self._end("out_of_turns", reward, f"{message} That was the last turn.")
        if status == INVALID:
            step.info["invalid"] = "rule"
        return step

    def _end(self, ending: str, reward: float, message: str) -> Step:
        self.ending = ending
        won = ending == "solved"
        solution = "" if won else self.solution()
        board = self.board()
        observation = f"Turn {self.turn} of {self.max_turns}: {message}"
        if solution:
            observation = f"{observation} {solution}"
        if board:
            observation = f"{observation}\n{board}"
        info: dict[str, Any] = {"turn": self.turn, "suffix": board, "success": won, "ending": ending}
        if ending == "format":
            info["invalid"] = "format"
        return _new_tuple(Step, (observation, reward, True, False, info))

    def sample_random_action(self) -> str:
        return boxed(self.random_move())

    def expert_action(self) -> str:
        return boxed(self.expert_move())

    def example_action(self) -> str:
        return boxed(self.example_move())

    def draw_level(self) -> Mapping[str, Any]:
        """Return values for the settings that are None, consistent with the other settings."""
        return self.rng.choice(self._matching_levels())

    def _matching_levels(self) -> list[Mapping[str, Any]]:
        fixed = {name: value for name, value in self._level.items() if value is not None}
        return [level for level in self.levels if all(level.get(name, value) == value for name, value in fixed.items())]

    def _check_level(self) -> None:
        for name, value in self._level.items():
            if isinstance(value, (float, str)):
                raise BadValue(f"{name} must be a whole number, got {value!r}")
        turns = self._level.get("max_turns")
        if turns is not None and turns < 1:
            raise BadValue(f"max_turns must be at least 1, got {turns!r}")
        if self._draws_level and self.levels and not self._matching_levels():
            names = ", ".join(self._level)
            raise BadValue(
                f"{self.title}: no predefined level matches these arguments; pass values for all of {names}, or "
                "None for arguments that should be sampled for every episode"
            )

    def _format_hint(self) -> str:
        return f"It must be inside \\boxed{{}}, as in {self.example_action()}. The game is over."

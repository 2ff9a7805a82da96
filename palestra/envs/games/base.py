r"""LanguageGame: what every game shares - the box, the turn budget, rewards, messages, the prompt.

A game is one file. It draws a board from `self.rng` (`setup`), says its rules, reads the inside of the player's
last `\boxed{}` (`parse`), applies it (`play`), shows what the player may see (`board`), and ships two players
(`random_move`, `expert_move`). Its state is plain attributes made of numbers, strings, lists, sets and dicts, so that
forks are cheap.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NoReturn, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.parsing import boxed, last_boxed
from palestra.types import Step

# Statuses in this order: those above INVALID end the game.
ONGOING: Final = 0  # the move counted; the game goes on
INVALID: Final = 1  # well-formed, but against the rules: it costs a turn and changes nothing
WON: Final = 2
LOST: Final = 3

LONGEST_MOVE = 256  # characters inside the box; no game needs more, and parsers stay quick

_step = tuple.__new__  # half the price of calling Step, on the hottest line


class GameOptions(TypedDict, total=False):
    """Keywords every game takes besides its own (GEM's names and values)."""

    success_reward: float  # 1.0
    internal_step_reward: float  # 0.0: a move that does not end the game
    fail_reward: float  # 0.0: lost, or out of turns
    invalid_action_reward: float  # 0.0: a well-formed move against the rules
    format_error_reward: float  # -0.1: no move could be read, which ends the game
    partial_credit: bool  # False; True pays every gain in `progress` at once, so that a success still sums to 1


class LanguageGame(Env):
    """Base of the games; see the module's docstring for what one provides."""

    title: ClassVar[str]  # "Guess the Number"
    move_name: ClassVar[str] = "move"  # what goes in the box
    has_board: ClassVar[bool] = True  # False: the messages say it all, and the prompt depends on the level alone
    levels: ClassVar[tuple[Mapping[str, Any], ...]] = ()  # what `None` keywords are drawn from, each a whole set

    inline = True
    shared = Env.shared | {"_level"}

    max_turns: int
    turn: int  # turns used
    _opening: str | None = None  # the prompt, where every episode has the same
    ending: str | None = "reset"  # None while running; then "solved", "lost", "out_of_turns" or "format"

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
    ) -> None:
        """`level`: the game's own keywords with their values, `max_turns` among them; None: drawn for every episode."""
        self.success_reward = float(success_reward)
        self.internal_step_reward = float(internal_step_reward)
        self.fail_reward = float(fail_reward)
        self.invalid_action_reward = float(invalid_action_reward)
        self.format_error_reward = float(format_error_reward)
        self.partial_credit = partial_credit
        every = [self.success_reward, self.internal_step_reward, self.fail_reward]
        every += [self.invalid_action_reward, self.format_error_reward]
        self.reward_range = (min(every), max(every))
        self._level = level
        self._drawn = any(value is None for value in level.values())
        self._check_level()
        for name, value in level.items():
            setattr(self, name, value)

    # What a game provides.

    @abstractmethod
    def setup(self) -> None:
        """Draw this episode's board from `self.rng`; every difficulty attribute is set by now."""

    @abstractmethod
    def rules(self) -> str:
        """What the player must know: aim, rules, what the answers mean, what a move is. Neither budget nor box."""

    @abstractmethod
    def example_move(self) -> str:
        """A well-formed move for the prompt; it must not depend on what is hidden."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The move written inside the box (at most LONGEST_MOVE characters), or None where it is not in the format."""

    @abstractmethod
    def play(self, move: Any) -> tuple[int, str]:
        """Apply a parsed move: ONGOING, INVALID, WON or LOST, and a sentence for the player."""

    @abstractmethod
    def random_move(self) -> str:
        """A well-formed move drawn from `self.player_rng`."""

    @abstractmethod
    def expert_move(self) -> str:
        """The expert's move, from what the player may know. Deterministic; changes nothing the player can notice."""

    def board(self) -> str:
        """What the player may see now, beyond the last message."""
        return ""

    def solution(self) -> str:
        """A sentence for the end of a game that was not won."""
        return ""

    def progress(self) -> float:
        """How much of the task is done, from 0 at the start to 1, for `partial_credit`."""
        return 0.0

    # What every game gets.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if options:
            raise BadValue(f"{self.title} takes no reset options, got {', '.join(map(str, options))}")
        seed = self.start_episode(seed)
        if self._drawn:
            for name, value in self.draw_level().items():
                setattr(self, name, value)
        self.turn = 0
        self.ending = None
        self._paid = 0.0  # partial credit given so far
        self.setup()
        prompt = self._opening
        if prompt is None:
            prompt = self._prompt()
            if not (self._drawn or self.has_board):
                self._opening = prompt
        board = self.board()
        if board:
            prompt = f"{prompt}\n\n{board}"
        return prompt, {"seed": seed, "max_turns": self.max_turns, "suffix": board}

    def _prompt(self) -> str:
        """All of it but the board."""
        return (
            f"You are playing {self.title}.\n{self.rules()}\n\n"
            f"Write your {self.move_name} inside \\boxed{{}}, for example {self.example_action()}. You may think "
            f"first; only the last \\boxed{{}} of your reply counts, and a reply without a readable {self.move_name} "
            f"ends the game.\nYou have {self.max_turns} turns."
        )

    def step(self, action: str) -> Step:
        if self.ending is not None:
            self._refuse()
        try:
            text = last_boxed(action)
        except (AttributeError, TypeError):
            raise BadValue(f"an action is a string, got {type(action).__name__}") from None
        turn = self.turn = self.turn + 1
        move = None if text is None or len(text) > LONGEST_MOVE else self.parse(text)
        if move is None:
            message = f"no {self.move_name} could be read. {self._format_hint()}"
            return self._end("format", self.format_error_reward, message)
        status, message = self.play(move)
        if status > INVALID or turn >= self.max_turns:
            return self._last(status, message)
        shown = f"Turn {turn} of {self.max_turns}: {message}"
        board = ""
        if self.has_board:
            board = self.board()
            if board:
                shown = f"{shown}\n{board}"
        if status == ONGOING:
            reward, info = self.internal_step_reward, {"turn": turn, "suffix": board}
        else:
            reward, info = self.invalid_action_reward, {"turn": turn, "suffix": board, "invalid": "rule"}
        if self.partial_credit:
            reward += self._gain()
        return _step(Step, (shown, reward, False, False, info))

    def _gain(self) -> float:
        """Partial credit: what was gained on the best progress so far."""
        gained = max(0.0, self.progress() - self._paid)
        self._paid += gained
        return gained

    def _last(self, status: int, message: str) -> Step:
        if status == WON:
            return self._end("solved", self.success_reward - self._paid, message)
        reward = self.fail_reward + (self._gain() if self.partial_credit else 0.0)
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
        shown = f"Turn {self.turn} of {self.max_turns}: {message}"
        if solution:
            shown = f"{shown} {solution}"
        if board:
            shown = f"{shown}\n{board}"
        info: dict[str, Any] = {"turn": self.turn, "suffix": board, "success": won, "ending": ending}
        if ending == "format":
            info["invalid"] = "format"
        return _step(Step, (shown, reward, True, False, info))

    def sample_random_action(self) -> str:
        return boxed(self.random_move())

    def expert_action(self) -> str:
        return boxed(self.expert_move())

    def example_action(self) -> str:
        return boxed(self.example_move())

    def draw_level(self) -> Mapping[str, Any]:
        """Values for the keywords that are None, given those that are not."""
        return self.rng.choice(self._open_levels())

    def _open_levels(self) -> list[Mapping[str, Any]]:
        given = {name: value for name, value in self._level.items() if value is not None}
        return [level for level in self.levels if all(level.get(name, value) == value for name, value in given.items())]

    def _check_level(self) -> None:
        for name, value in self._level.items():
            if isinstance(value, (float, str)):
                raise BadValue(f"{name} is a whole number, got {value!r}")
        turns = self._level.get("max_turns")
        if turns is not None and turns < 1:
            raise BadValue(f"max_turns is at least 1, got {turns!r}")
        if self._drawn and self.levels and not self._open_levels():
            names = ", ".join(self._level)
            raise BadValue(
                f"{self.title}: give all of {names}, or leave out those that should be drawn for every episode"
            )

    def _format_hint(self) -> str:
        return f"It has to stand inside \\boxed{{}}, as in {self.example_action()}. The game is over."

    def _refuse(self) -> NoReturn:
        if self.ending == "reset":
            raise ResetNeeded("call reset() before the first step()")
        raise EpisodeOver(f"this game is over ({self.ending}); call reset() for the next one")

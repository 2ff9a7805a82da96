"""MultiTurnEnv: base class for environments with multiple turns and free-text commands.

It enforces the turn budget, ends the episode, and rejects steps after its end. A subclass samples a task (`setup`),
writes the prompt (`prompt`), and converts each action into an `Outcome` (`act`). An invalid action uses a turn and
earns `error_reward`, and the observation explains the error; with `stop_when_error`, it also ends the episode.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, not_running
from palestra.parsing import read_command
from palestra.spec import check_split
from palestra.types import Step

MAX_COMMAND_CHARS = 300  # maximum command length; bounds the cost of parsing
_STRIPPED = "`'\"*_$[]>. \u201c\u201d\u2018\u2019"  # characters that may surround a command


def parse_command(reply: str) -> str | None:
    """Return the command in a reply, or None if it is too long.

    The command is the text after the last "Action:", in the last box, tag or fenced line, or on the last line (see
    `palestra.parsing.read_command`). It is converted to lower case with single spaces, and markup, surrounding quotes
    and the final period are removed.
    """
    if (
        len(reply) <= MAX_COMMAND_CHARS
        and ":" not in reply
        and "<" not in reply
        and "\\" not in reply
        and reply.isprintable()
    ):
        return " ".join(reply.lower().split()).strip(_STRIPPED)  # fast path: a single line
    line = read_command(reply)
    return None if len(line) > MAX_COMMAND_CHARS else line.lower().strip(_STRIPPED)


class Outcome(NamedTuple):
    """Result of an action, returned by `MultiTurnEnv.act`."""

    text: str  # the observation
    reward: float = 0.0
    ending: str | None = None  # for example "solved" or "lost"; None while the episode continues
    invalid: str | None = None  # "format" if no action could be parsed, "rule" if the action is not allowed now
    info: dict[str, Any] | None = None  # additional entries for `info`


class MultiTurnOptions(TypedDict, total=False):
    """Keyword arguments common to all multi-turn environments."""

    error_reward: float  # reward for an invalid action (default 0.0)
    split: str | None  # "train" or "test" restricts tasks to that part of the task space; None uses all (default)
    stop_when_error: bool  # whether an invalid action ends the episode (default False)


class MultiTurnEnv(Env):
    """Base class for multi-turn environments; the module docstring lists the methods that a subclass implements."""

    inline = True

    max_turns: int
    turn: int  # number of turns used
    ending: str | None = "reset"  # None during an episode; afterwards "solved", "lost", "out_of_turns" or "format"
    _prompt: str | None = None  # first observation, if `task_key` has generated it

    def __init__(
        self,
        *,
        max_turns: int,
        error_reward: float = 0.0,
        stop_when_error: bool = False,
        split: str | None = None,
    ) -> None:
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise BadValue(f"`max_turns` must be an integer of at least 1, got {max_turns!r}")
        self.max_turns = max_turns
        self.split = check_split(split)
        self.error_reward = float(error_reward)
        self.stop_when_error = bool(stop_when_error)
        self.reward_range = (min(0.0, self.error_reward), max(1.0, self.error_reward))

    # Methods that a subclass implements.

    @abstractmethod
    def setup(self, options: dict[str, Any]) -> None:
        """Sample a task with `self.rng` or `self.task_seed`, and remove the used entries from `options`."""

    @abstractmethod
    def prompt(self) -> str:
        """Return the first observation: the task, the available actions with an example, and the turn budget."""

    @abstractmethod
    def act(self, action: str) -> Outcome:
        """Apply an action, which may be any string; if it is invalid, set `invalid` and explain why in `text`."""

    def task_key(self) -> object:
        """Return a key that identifies the task that `setup` sampled; equal keys mean the same task."""
        self._prompt = self.prompt()  # `reset` returns this prompt, because generating it again may be slow
        return self._prompt

    def reset_info(self) -> dict[str, Any]:
        """Return additional entries for the `info` that `reset` returns."""
        return {}

    def ends_after_error(self) -> bool:
        """Return whether the invalid action that was just taken ends the episode."""
        return self.stop_when_error

    # Methods shared by all subclasses.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        unused = dict(options or {})
        seed = self.start_episode(seed)
        self.turn = 0
        unused = self.sample_task(lambda: self._sample(unused), lambda _: self.task_key(), chosen=bool(options))
        if unused:
            raise BadValue(f"unknown reset options for {type(self).__name__}: {', '.join(map(str, unused))}")
        self.ending = None
        prompt, self._prompt = self._prompt, None
        info = {"seed": seed, "max_turns": self.max_turns, "task_id": self.task_id, **self.reset_info()}
        return self.prompt() if prompt is None else prompt, info

    def _sample(self, options: dict[str, Any]) -> dict[str, Any]:
        """Sample a task and return the options that it did not use."""
        unused = dict(options)
        self.setup(unused)
        return unused

    def step(self, action: str) -> Step:
        self._check_step(action)
        return self._to_step(self.act(action))

    def can_read(self, action: str) -> bool:
        return not self.inline or self.fork().act(action).invalid != "format"

    def _check_step(self, action: object) -> None:
        """Raise if no episode is running or the action is not a string."""
        if self.ending is not None:
            raise not_running(self.ending)
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")

    def _to_step(self, outcome: Outcome) -> Step:
        """Convert an outcome into a step; a subclass that overrides `astep` must call this method last."""
        text, reward, ending, invalid, more = outcome
        self.turn += 1  # incremented after `act`, so that an action that raises does not use a turn
        info: dict[str, Any] = {"turn": self.turn}
        if more:
            info.update(more)
        if invalid is not None:
            info["invalid"] = invalid
            reward = self.error_reward
            if self.ends_after_error():
                ending = "format" if invalid == "format" else "lost"
        if ending is None and self.turn >= self.max_turns:
            ending, text = "out_of_turns", f"{text}\nYou have used all {self.max_turns} turns."
        if ending is None:
            return Step(text, reward, False, False, info)
        self.ending = ending
        return Step(text, reward, True, False, {**info, "success": ending == "solved", "ending": ending})

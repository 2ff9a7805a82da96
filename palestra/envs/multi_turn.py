"""MultiTurnEnv: base of environments with many turns and free-text commands.

It handles the turn budget, the end of the episode and calls after it. A subclass draws a task (`setup`), writes the
prompt (`prompt`), and turns each action into an `Outcome` (`act`). An invalid action uses a turn and gets feedback;
`error_reward` is its reward, and `stop_when_error` ends the episode.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, NoReturn, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.parsing import after_thinking, react_action
from palestra.types import Step

MAX_COMMAND_CHARS = 300  # no command needs more, and the limit keeps parsing fast
_STRIPPED = "`'\"*. "  # characters that may surround a command
_MAX_REPLY_CHARS = 8_000  # the command is parsed from this many characters at the end of a reply


def parse_command(reply: str) -> str | None:
    """Return the command of a reply: the text after its last "Action:", or else its last line; None if it is too long.

    The command is in lower case, with single spaces, and without surrounding quotes and full stop.
    """
    if len(reply) <= MAX_COMMAND_CHARS and ":" not in reply and "<" not in reply and reply.isprintable():
        return " ".join(reply.lower().split()).strip(_STRIPPED)  # fast path: a single line
    reply = after_thinking(reply[-_MAX_REPLY_CHARS:])
    action = react_action(reply)
    lines = (reply if action is None else action).strip().splitlines()
    if not lines:
        return ""
    line = lines[-1] if action is None else lines[0]
    return None if len(line) > MAX_COMMAND_CHARS else " ".join(line.lower().split()).strip(_STRIPPED)


class Outcome(NamedTuple):
    """Result of an action."""

    text: str  # the observation
    reward: float = 0.0
    ending: str | None = None  # "solved", "lost" ...; None while the episode continues
    invalid: str | None = None  # "format": no action found; "rule": the action is not possible here
    info: dict[str, Any] | None = None  # additional entries for `info`


class MultiTurnOptions(TypedDict, total=False):
    """Keyword arguments common to all multi-turn environments."""

    error_reward: float  # reward of an invalid action (default 0.0)
    stop_when_error: bool  # whether an invalid action ends the episode (default False)


class MultiTurnEnv(Env):
    """Base of multi-turn environments; the module's docstring describes what a subclass provides."""

    inline = True

    max_turns: int
    turn: int  # turns used
    ending: str | None = "reset"  # None while running; then "solved", "lost", "out_of_turns" or "format"

    def __init__(self, *, max_turns: int, error_reward: float = 0.0, stop_when_error: bool = False) -> None:
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise BadValue(f"`max_turns` must be an integer of at least 1, got {max_turns!r}")
        self.max_turns = max_turns
        self.error_reward = float(error_reward)
        self.stop_when_error = bool(stop_when_error)
        self.reward_range = (min(0.0, self.error_reward), max(1.0, self.error_reward))

    # Provided by a subclass

    @abstractmethod
    def setup(self, options: dict[str, Any]) -> None:
        """Draw the episode's task from `self.rng` or `self.seed`, and remove the options it uses from `options`."""

    @abstractmethod
    def prompt(self) -> str:
        """Return everything the agent needs: the task, the actions with an example, the turn budget."""

    @abstractmethod
    def act(self, action: str) -> Outcome:
        """Take an action, which may be any string; an invalid one sets `invalid` and explains why."""

    def reset_info(self) -> dict[str, Any]:
        """Return entries of `info` at reset, besides the seed."""
        return {}

    # Common to all subclasses

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        unused = dict(options or {})
        seed = self.start_episode(seed)
        self.turn = 0
        self.setup(unused)
        if unused:
            raise BadValue(f"{type(self).__name__} does not know these reset options: {', '.join(map(str, unused))}")
        self.ending = None
        return self.prompt(), {"seed": seed, "max_turns": self.max_turns, **self.reset_info()}

    def step(self, action: str) -> Step:
        self._check_step(action)
        return self._to_step(self.act(action))

    def _check_step(self, action: object) -> None:
        """Raise if no episode is running or the action is not a string."""
        if self.ending is not None:
            self._raise_not_running()
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")

    def _to_step(self, outcome: Outcome) -> Step:
        """Turn an outcome into a step; subclasses with their own `astep` call it last."""
        text, reward, ending, invalid, more = outcome
        self.turn += 1  # after `act`: an action that raises does not use a turn
        info: dict[str, Any] = {"turn": self.turn}
        if more:
            info.update(more)
        if invalid is not None:
            info["invalid"] = invalid
            reward = self.error_reward
            if self.stop_when_error:
                ending = "format" if invalid == "format" else "lost"
        if ending is None and self.turn >= self.max_turns:
            ending, text = "out_of_turns", f"{text}\nYou have used all {self.max_turns} turns."
        if ending is None:
            return Step(text, reward, False, False, info)
        self.ending = ending
        return Step(text, reward, True, False, {**info, "success": ending == "solved", "ending": ending})

    def _raise_not_running(self) -> NoReturn:
        if self.ending == "reset":
            raise ResetNeeded("call reset() before the first step()")
        raise EpisodeOver(f"this episode is over ({self.ending}); call reset() to start the next one")

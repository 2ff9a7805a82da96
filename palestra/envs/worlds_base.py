"""WorldEnv: what text worlds of many turns share - the budget of turns, the ending, the refusal after it.

A world is an environment whose own words are the actions. It draws a task (`begin`), tells it (`prompt`), and turns
each action into an `Outcome` (`act`). Bad actions cost a turn and are answered; `error_reward` prices them, and
`stop_when_error` ends the episode there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, NoReturn, TypedDict

from palestra.core import Env, Reset
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.parsing import after_thinking, react_action
from palestra.types import Step

LONGEST_ACTION = 300  # characters of an action in a world's own words; no world needs more, and parsers stay quick
_AROUND = "`'\"*. "  # what may stand around an action
_TAIL = 8_000  # characters at the end of a reply in which the action is looked for


def spoken(reply: str) -> str | None:
    """The action a reply ends with: what follows its last "Action:", or else its last line; None where that is too
    long.

    Small letters, single spaces, without quotes and the full stop around it.
    """
    if len(reply) <= LONGEST_ACTION and ":" not in reply and "<" not in reply and reply.isprintable():
        return " ".join(reply.lower().split()).strip(_AROUND)  # a line and no more: the usual case
    reply = after_thinking(reply[-_TAIL:])
    said = react_action(reply)
    lines = (reply if said is None else said).strip().splitlines()
    if not lines:
        return ""
    line = lines[-1] if said is None else lines[0]
    return None if len(line) > LONGEST_ACTION else " ".join(line.lower().split()).strip(_AROUND)


class Outcome(NamedTuple):
    """What an action led to."""

    text: str  # what the agent reads
    reward: float = 0.0
    ending: str | None = None  # "solved", "lost" ...; None: the episode goes on
    invalid: str | None = None  # "format": nothing could be read; "rule": read, but not possible here
    info: dict[str, Any] | None = None  # more for `info`


class WorldOptions(TypedDict, total=False):
    """Keywords every world takes besides its own."""

    error_reward: float  # 0.0: for an action that cannot be read or done
    stop_when_error: bool  # False; True: such an action ends the episode


class WorldEnv(Env):
    """Base of the worlds; see the module's docstring for what one provides."""

    inline = True

    max_turns: int
    turn: int  # turns used
    ending: str | None = "reset"  # None while running; then "solved", "lost", "out_of_turns" or "format"

    def __init__(self, *, max_turns: int, error_reward: float = 0.0, stop_when_error: bool = False) -> None:
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise BadValue(f"max_turns is a whole number from 1 up, got {max_turns!r}")
        self.max_turns = max_turns
        self.error_reward = float(error_reward)
        self.stop_when_error = bool(stop_when_error)
        self.reward_range = (min(0.0, self.error_reward), max(1.0, self.error_reward))

    # What a world provides.

    @abstractmethod
    def begin(self, options: dict[str, Any]) -> None:
        """Draw this episode's task from `self.rng` or `self.seed`; takes the options it knows out of `options`."""

    @abstractmethod
    def prompt(self) -> str:
        """Everything the agent needs: the task, the actions with an example, the budget."""

    @abstractmethod
    def act(self, action: str) -> Outcome:
        """Do it. Any string; a bad one gets a helpful text and says `invalid`."""

    def told(self) -> dict[str, Any]:
        """What `info` carries at the start besides the seed."""
        return {}

    # What every world gets.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        left = dict(options or {})
        seed = self.start_episode(seed)
        self.turn = 0
        self.begin(left)
        if left:
            raise BadValue(f"{type(self).__name__} does not know these reset options: {', '.join(map(str, left))}")
        self.ending = None
        return self.prompt(), {"seed": seed, "max_turns": self.max_turns, **self.told()}

    def step(self, action: str) -> Step:
        self._admit(action)
        return self._taken(self.act(action))

    def _admit(self, action: object) -> None:
        """Whether there is a step to take."""
        if self.ending is not None:
            self._refuse()
        if not isinstance(action, str):
            raise BadValue(f"an action is a string, got {type(action).__name__}")

    def _taken(self, outcome: Outcome) -> Step:
        """The step that an outcome makes; a world that acts in its own `astep` ends with it."""
        text, reward, ending, invalid, more = outcome
        self.turn += 1  # after: where the world breaks, the turn is not used up
        info: dict[str, Any] = {"turn": self.turn}
        if more:
            info.update(more)
        if invalid is not None:
            info["invalid"] = invalid
            reward = self.error_reward
            if self.stop_when_error:
                ending = "format" if invalid == "format" else "lost"
        if ending is None and self.turn >= self.max_turns:
            ending, text = "out_of_turns", f"{text}\nThat was the last of your {self.max_turns} turns."
        if ending is None:
            return Step(text, reward, False, False, info)
        self.ending = ending
        return Step(text, reward, True, False, {**info, "success": ending == "solved", "ending": ending})

    def _refuse(self) -> NoReturn:
        if self.ending == "reset":
            raise ResetNeeded("call reset() before the first step()")
        raise EpisodeOver(f"this episode is over ({self.ending}); call reset() for the next one")

r"""Play TextArena games as Palestra environments: `palestra.make("textarena:GuessTheNumber-v0")`.

The agent is player 0. In a game with several players, `opponent` plays the others:

    env = palestra.make("textarena:TicTacToe-v0", opponent=lambda observation: "[4]")
"""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from palestra.core import Env, Reset
from palestra.errors import BadValue, EnvFailed, MissingExtra, UnknownEnv, not_running
from palestra.types import Step

if TYPE_CHECKING:
    import textarena
else:
    try:
        import textarena
    except ModuleNotFoundError as err:
        # TextArena is not one of Palestra's extras, because it requires a GPL-licensed package.
        raise MissingExtra("textarena is not installed. Install it with: pip install textarena") from err

Opponent = Callable[[str], str]  # (observation) -> action

DEFAULT_TURNS = 100  # turn limit if the caller sets none; games have their own limits too
_lock = threading.RLock()  # TextArena uses the process's global random generator


class FromTextArena(Env):
    """Single-agent view of a TextArena game.

    Observations contain the game's messages since the agent's last action. The reward of the last step is player 0's
    reward in the game; all others are 0. An episode is successful if this reward is at least 1. TextArena draws from
    Python's global random generator; each episode has its own generator state, so that episodes are reproducible and do
    not affect each other.

    Args:
        env: a TextArena id.
        opponent: function (observation) -> action for the other players, or its name as module:function.
        players: number of players.
        max_turns: maximum number of the agent's turns.
        make_kwargs: keyword arguments for `textarena.make`.
    """

    shared = Env.shared | {"_opponent"}
    reward_range = (-1.0, 1.0)

    def __init__(
        self,
        env: str,
        *,
        opponent: Opponent | str | None = None,
        players: int | None = None,
        max_turns: int = DEFAULT_TURNS,
        make_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if max_turns < 1:
            raise BadValue(f"`max_turns` must be at least 1, got {max_turns!r}")
        self._opponent = _imported(opponent) if isinstance(opponent, str) else opponent
        self.players = players if players is not None else 1 if opponent is None else 2
        if self.players > 1 and self._opponent is None:
            raise BadValue("a game with several players needs opponent=, a function (observation) -> action")
        self.max_turns: int = max_turns
        self.turn = 0
        self._name = env
        self._ending: str | None = "reset"  # None during an episode
        try:
            self.game = textarena.make(env, **dict(make_kwargs or {}))
        except ValueError as err:
            raise UnknownEnv(f"TextArena cannot create {env!r}: {err}") from err

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        del options
        seed = self.start_episode(seed)
        self._random_state = random.Random(seed).getstate()
        with self._own_random():
            try:
                self.game.reset(num_players=self.players, seed=None)
            except AssertionError as err:
                raise BadValue(
                    f"{self._name} does not support {self.players} players; pass players= and opponent=: {err}"
                ) from err
            except Exception as err:
                raise EnvFailed(f"{self!r} failed in reset: {err!r}") from err
            self._let_others_play()
            text = self._messages()
        self.turn = 0
        self._ending = None
        return text, {"seed": seed, "max_turns": self.max_turns}

    def step(self, action: str) -> Step:
        if self._ending is not None:
            raise not_running(self._ending)
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")
        self.turn += 1
        with self._own_random():
            try:
                self.game.step(action=action)
                self._let_others_play()
            except Exception as err:
                self._ending = "failed"
                raise EnvFailed(f"{self!r} failed in step: {err!r}") from err
            done = bool(self.game.state.done)
            text = self._outcome() if done else self._messages()
        cut = not done and self.turn >= self.max_turns
        reward = float((self.game.state.rewards or {}).get(0, 0.0)) if done else 0.0
        info: dict[str, Any] = {"turn": self.turn}
        if done or cut:
            self._ending = "terminated" if done else "truncated"
            info["success"] = done and reward >= 1.0
        return Step(text, reward, done, cut, info)

    def __repr__(self) -> str:
        return f"<FromTextArena {self._name}>"

    def _let_others_play(self) -> None:
        """Play the other players' turns until it is player 0's turn or the game is over."""
        while not self.game.state.done and self.game.state.current_player_id != 0:
            if self._opponent is None:
                raise BadValue(f"{self._name} has several players; pass opponent=, a function (observation) -> action")
            self.game.step(action=self._opponent(self._messages()))

    def _messages(self) -> str:
        """Return the messages to the current player since its last action, without its own."""
        player, messages = _innermost(self.game).get_observation()
        if isinstance(messages, str):
            return messages
        return "\n\n".join(str(text).strip() for sender, text, *_ in messages if sender != player)

    def _outcome(self) -> str:
        reason = self.game.state.game_info.get(0, {}).get("reason")
        return f"The game is over. {reason or ''}".strip()

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        with _lock:
            outer = random.getstate()
            random.setstate(self._random_state)
            try:
                yield
            finally:
                self._random_state = random.getstate()
                random.setstate(outer)


from_textarena = FromTextArena


def _innermost(game: Any) -> Any:
    """Return the game without wrappers, which repeat all earlier messages in each observation."""
    while isinstance(game, textarena.Wrapper):
        game = game.env
    return game


def _imported(name: str) -> Opponent:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise BadValue(f"`opponent` must be a function or module:function, got {name!r}")
    function: Opponent = getattr(importlib.import_module(module), attribute)
    return function

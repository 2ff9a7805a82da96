r"""Wrap Gymnasium environments as Palestra environments, so that a language model can play them.

`palestra.make("gymnasium:CartPole-v1")` creates a wrapped environment by name. `from_gymnasium` also accepts an env
instance, a spec, or a function that builds the env:

    from palestra.envs.external.gymnasium import from_gymnasium

    env = from_gymnasium("FrozenLake-v1", parse={"left": 0, "down": 1, "right": 2, "up": 3})
    observation, info = env.reset(seed=1)  # the prompt; the agent writes its actions inside \boxed{}
"""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from palestra.core import Env, Reset
from palestra.envs.external.gymnasium_actions import ActionFormat, format_of
from palestra.errors import BadValue, EnvFailed, UnknownEnv, not_running
from palestra.optional import require
from palestra.parsing import boxed, clip, plain, read_answer
from palestra.types import Step

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
    from gymnasium.envs.registration import EnvSpec as GymSpec
else:
    gymnasium = require("gymnasium", extra="gymnasium")
    np = require("numpy", extra="gymnasium")
    GymSpec = gymnasium.envs.registration.EnvSpec

GymEnv: TypeAlias = "gymnasium.Env[Any, Any]"

DEFAULT_TURNS = 1000  # turn limit if neither the caller nor the Gymnasium env sets one
_HIGHLIGHT = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0?m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_FOR_PROGRAMMERS = re.compile(
    r"^\s*#+ *(?:Information|Arguments|References|Version|Vector).*", re.DOTALL | re.MULTILINE
)


class FromGymnasium(Env):
    r"""Text interface to a Gymnasium env.

    An action that cannot be parsed uses a turn, earns reward 0 and does not change the state. All other rewards come
    from the Gymnasium env. The episode is truncated after `max_turns` turns, or earlier by the env. The Gymnasium env's
    own info is in `info["gymnasium"]`.

    A fork is a deep copy if the env can be copied. Otherwise, the actions are replayed in a new env, and EnvFailed is
    raised if the replay leads to a different observation. After passing an env instance to this class, do not call its
    methods directly.

    Args:
        env: a Gymnasium id, a spec, an env instance, or a function that builds an env. An env given by its id is built
            with render_mode "ansi" if it supports that mode.
        describe: task description for the prompt; by default, the part of the env's docstring that describes the task.
        parse: action names, such as {"left": 0}, or a function that takes the whole reply and returns an action, or
            None if there is none. A function requires `prompt`. By default, actions are numbers (or text) inside
            \boxed{}.
        render: function (observation, env) -> text. The default text contains the observation and, if available, the
            "ansi" rendering with highlighted parts in [brackets].
        prompt: text before the first observation, which replaces the default prompt.
        success: function (last result of the Gymnasium env's `step`, sum of rewards) -> bool. The default is
            info["success"] or info["is_success"]. If the env sets neither, an episode is successful if it reached the
            env's reward threshold, or if it terminated with a positive reward higher than all earlier rewards.
        max_turns: maximum number of turns; by default the env's step limit, or 1000 if it has none.
        make_kwargs: keyword arguments for `gymnasium.make` if `env` is an id.
    """

    shared = Env.shared | {"gym", "_source", "_format", "_parse", "_render", "_success"}

    gym: GymEnv
    max_turns: int
    turn: int  # number of turns used
    _ending: str | None = "reset"  # None during an episode

    def __init__(
        self,
        env: GymEnv | GymSpec | str | Callable[[], GymEnv],
        *,
        describe: str | None = None,
        parse: Mapping[str, Any] | Callable[[str], Any] | None = None,
        render: Callable[[Any, GymEnv], str] | None = None,
        prompt: str | None = None,
        success: Callable[[Step, float], bool] | None = None,
        max_turns: int | None = None,
        make_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if max_turns is not None and max_turns < 1:
            raise BadValue(f"`max_turns` must be at least 1, got {max_turns!r}")
        self._source: GymSpec | Callable[[], GymEnv] | None
        if isinstance(env, gymnasium.Env):
            self.gym, self._source = env, env.spec
        elif isinstance(env, str):
            self.gym = _make_with_text(env, make_kwargs or {})
            self._source = self.gym.spec
        elif isinstance(env, GymSpec) or callable(env):
            self._source = env
            self.gym = self._fresh()
        else:
            raise BadValue(
                f"`env` must be a Gymnasium env, its id, its spec, or a function that builds it; got {env!r}"
            )
        spec = self.gym.spec
        self.max_turns = max_turns or (spec and spec.max_episode_steps) or DEFAULT_TURNS
        self._name = type(self.gym.unwrapped).__name__ if spec is None else spec.id
        self._format: ActionFormat | None = None
        self._parse: Callable[[str], Any] | None = None
        if parse is None or isinstance(parse, Mapping):
            self._format = format_of(self.gym.action_space, parse)
            self._prompt = self._default_prompt(self._format, describe) if prompt is None else prompt
        elif prompt is None:
            raise BadValue("a parse function needs prompt=, which describes the action format to the agent")
        else:
            self._parse = parse
            self._prompt = prompt
        self._render = render
        self._success = success
        options = {name: value for name, value in self._call[1].items() if name != "env"}
        # Constructor arguments for a new env, without the env instance.
        self._call = (() if self._source is None else (self._source,), options)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        self._options = options
        self._observation, info = self._reset_gym(self.gym)
        self._actions: list[Any] = []
        self.turn = 0
        self._total = 0.0  # sum of the rewards so far
        self._best = 0.0  # largest reward so far, or 0 if all were negative
        self._ending = None
        self._seen = self._text(self._observation, self.gym)
        return f"{self._prompt}\n\n{self._seen}", {"seed": seed, "max_turns": self.max_turns, "gymnasium": info}

    def step(self, action: str) -> Step:
        if self._ending is not None:
            raise not_running(self._ending)
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")
        self.turn += 1
        move, problem = self._read(action)
        if problem:
            raw = Step(self._observation, 0.0, False, False, {})
            message = f" {problem} Nothing has changed."
        else:
            raw = self._act(move)
            self._seen = self._text(self._observation, self.gym)
            message = ""
        cut = not raw.terminated and (raw.truncated or self.turn >= self.max_turns)
        info: dict[str, Any] = {"turn": self.turn, "gymnasium": raw.info}
        if problem:
            info["invalid"] = "format"
        if raw.terminated or cut:
            self._ending = "terminated" if raw.terminated else "truncated"
            info["success"] = self._succeeded(raw._replace(truncated=cut))
            message += " The episode is over."
        self._best = max(self._best, raw.reward)
        text = f"Turn {self.turn} of {self.max_turns}:{message}\n{self._seen}"
        return Step(text, raw.reward, raw.terminated, cut, info)

    def can_read(self, action: str) -> bool:
        return not self._read(action)[1]

    def close(self) -> None:
        self.gym.close()

    def sample_random_action(self) -> str:
        return super().sample_random_action() if self._format is None else boxed(self._format.sample(self.player_rng))

    def example_action(self) -> str:
        return super().example_action() if self._format is None else boxed(self._format.example)

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        if same_state:
            return super().spawn(same_state=True, **kwargs)
        env = type(self)(self._fresh(), **{**self._call[1], **kwargs})
        env._source = self._source
        if not kwargs:
            env.spec = self.spec
        return env

    def __repr__(self) -> str:
        return f"<FromGymnasium {self._name}>"

    # Calls to the Gymnasium env

    def _reset_gym(self, gym: GymEnv) -> tuple[Any, dict[str, Any]]:
        try:
            return gym.reset(seed=self.seed % 2**32, options=self._options)  # some envs accept only 32-bit seeds
        except Exception as err:
            raise EnvFailed(f"{self!r} failed in reset: {err!r}") from err

    def _act(self, move: Any) -> Step:
        self._actions.append(copy.copy(move))  # copy the action, because the env may modify it in place
        try:
            self._observation, reward, terminated, truncated, info = self.gym.step(move)
        except Exception as err:
            self._ending = "failed"
            raise EnvFailed(f"{self!r} failed in step: {err!r}") from err
        self._total += float(reward)
        return Step(self._observation, float(reward), bool(terminated), bool(truncated), info)

    def _read(self, reply: str) -> tuple[Any, str]:
        """Return the action in a reply and an empty string, or None and an error message."""
        if self._format is None:
            move = None if self._parse is None else self._parse(reply)
            return (move, "") if move is not None else (None, "No action could be read from your reply.")
        text = read_answer(reply)
        if text is None:
            return None, f"No action was found. Write your action inside \\boxed{{}}, as in {self.example_action()}."
        move = self._format.read(text)
        if move is None:
            move = self._format.read(plain(text))
        return (move, "") if move is not None else (None, f"'{clip(text)}' is not {self._format.description}.")

    def _succeeded(self, last: Step) -> bool:
        if self._success is not None:
            return bool(self._success(last, self._total))
        for name in ("success", "is_success"):
            if name in last.info:
                return bool(last.info[name])
        threshold = None if self.gym.spec is None else self.gym.spec.reward_threshold
        if threshold is not None and self._total >= threshold:
            return True
        # Requiring a new highest reward excludes CartPole, which gives reward 1 for every step, including the last one.
        return last.terminated and last.reward > self._best

    # Prompt and observation texts

    def _default_prompt(self, actions: ActionFormat, describe: str | None) -> str:
        about = _docstring(self.gym) if describe is None else describe
        return (
            f"You are acting in the environment {self._name}.\n{about}\n\n"
            f"An action is {actions.description}. Write it inside \\boxed{{}}, for example {boxed(actions.example)}. "
            "You may think first: only the last \\boxed{} of your reply counts, and a reply without a readable action "
            f"uses a turn and changes nothing.\nYou have {self.max_turns} turns."
        )

    def _text(self, observation: Any, gym: GymEnv) -> str:
        if self._render is not None:
            return self._render(observation, gym)
        text = f"Observation: {_readable(observation)}"
        picture = gym.render() if gym.render_mode == "ansi" else None
        if isinstance(picture, str):
            text += "\n" + _ESCAPE.sub("", _HIGHLIGHT.sub(r"[\1]", picture)).strip("\n")
        return text

    # Copying and pickling

    def _copy(self, memo: dict[int, Any]) -> Self:
        fork = super()._copy(memo)
        fork.gym = self._copy_gym()
        return fork

    def _copy_gym(self) -> GymEnv:
        if _keeps_state(self.gym):
            with suppress(Exception):  # copying a third-party env may raise any exception
                return copy.deepcopy(self.gym)
        return self._replayed()

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "gym": None}  # by default, the env is rebuilt by replaying the actions
        if _keeps_state(self.gym):
            with suppress(Exception):
                state["gym"] = pickle.dumps(self.gym)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        pickled = state["gym"]
        self.gym = self._replayed() if pickled is None else pickle.loads(pickled)  # noqa: S301  # from __getstate__

    def _fresh(self) -> GymEnv:
        if self._source is None:
            raise BadValue("this Gymnasium env has no spec, so it cannot be rebuilt; pass a function that builds it")
        if isinstance(self._source, GymSpec):
            return gymnasium.make(self._source)
        return self._source()

    def _replayed(self) -> GymEnv:
        gym = self._fresh()
        if self._ending == "reset":
            return gym
        observation, _ = self._reset_gym(gym)
        for move in self._actions:
            observation = gym.step(copy.copy(move))[0]
        if self._text(observation, gym) != self._seen:
            raise EnvFailed(
                f"{self!r} can neither be copied nor replayed: the same seed and actions led to a different observation"
            )
        return gym


from_gymnasium = FromGymnasium


def _make_with_text(env_id: str, kwargs: Mapping[str, Any]) -> GymEnv:
    try:
        env = gymnasium.make(env_id, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.Error) as err:
        raise UnknownEnv(f"Gymnasium cannot build {env_id!r}: {err}") from err
    if "ansi" not in env.metadata.get("render_modes", ()):
        return env
    env.close()
    return gymnasium.make(env_id, **{"render_mode": "ansi", **kwargs})


def _keeps_state(env: GymEnv) -> bool:
    """Return whether a deep copy of the env includes its state; EzPickle copies only the constructor arguments."""
    while not isinstance(env, gymnasium.utils.EzPickle):
        if not isinstance(env, gymnasium.Wrapper):
            return True
        env = env.env
    return False


def _docstring(env: GymEnv) -> str:
    return inspect.cleandoc(_FOR_PROGRAMMERS.sub("", env.unwrapped.__doc__ or "", count=1)).strip()


def _readable(value: Any) -> str:
    """Return an observation as text; arrays are rounded to four decimal places, and long arrays are abbreviated."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_readable(item)}" for name, item in value.items())
    if isinstance(value, tuple):
        return f"({', '.join(map(_readable, value))})"
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, suppress_small=True, separator=", ", threshold=1000)
    if isinstance(value, float | np.floating):
        return f"{float(value):.4g}"
    return str(value)

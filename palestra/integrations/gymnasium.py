"""Use Palestra environments as Gymnasium environments with text observations and actions.

    import gymnasium
    from palestra.integrations.gymnasium import register_all, to_gymnasium

    env = to_gymnasium("game:Sudoku-v0-easy")
    register_all()
    env = gymnasium.make("palestra/game.Sudoku-v0-easy")  # Gymnasium splits ids at a colon, so it is replaced by a dot

`palestra.envs.external.gymnasium` does the opposite: it makes Gymnasium environments available in Palestra.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from palestra.core import Env
from palestra.errors import BadValue, ResetNeeded
from palestra.optional import require
from palestra.registry import list_envs, make
from palestra.types import text_of

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = require("gymnasium", extra="gymnasium")


__all__ = ["AnyText", "ToGymnasium", "register_all", "to_gymnasium"]


class AnyText(gymnasium.Space[str]):
    """Space of all strings. `draw(seed)` generates the samples, which by default are short printable strings."""

    def __init__(self, draw: Callable[[int], str] | None = None, seed: int | None = None) -> None:
        super().__init__(dtype=str, seed=seed)
        self._draw = draw

    def sample(self, mask: None = None, probability: None = None) -> str:
        if mask is not None or probability is not None:
            raise BadValue("AnyText supports neither `mask` nor `probability`")
        seed = int(self.np_random.integers(2**48))
        if self._draw is not None:
            return self._draw(seed)
        rng = Random(seed)
        return "".join(map(chr, rng.choices(range(32, 127), k=rng.randint(0, 40))))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    def __hash__(self) -> int:
        return hash(AnyText)

    def __repr__(self) -> str:
        return "AnyText()"


class ToGymnasium(gymnasium.Env[str, str]):
    """Adapter that exposes a Palestra env, passed by name or as an instance, as a `gymnasium.Env` with text spaces.

    `kwargs` are passed to `palestra.make`. The action space samples actions from the env's random player, using the
    space's seed.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012  # name and type required by Gymnasium

    def __init__(self, env: Env | str, *, render_mode: str | None = None, **kwargs: Any) -> None:
        if render_mode not in (None, "ansi"):
            raise BadValue(f"`render_mode` must be 'ansi' or None, got {render_mode!r}")
        if isinstance(env, str):
            self.env = make(env, **kwargs)
        elif kwargs:
            raise BadValue(f"keyword arguments require an environment's name, not an instance; got {', '.join(kwargs)}")
        else:
            self.env = env
        self.render_mode = render_mode
        self.observation_space = AnyText()
        self.action_space = AnyText(self._random_action)
        self.spec = gymnasium.envs.registration.EnvSpec(
            id=_gymnasium_id(env if isinstance(env, str) else type(env).__name__),
            entry_point="palestra.integrations.gymnasium:ToGymnasium",
            order_enforce=False,  # the env itself raises ResetNeeded if `step` is called before `reset`
            disable_env_checker=True,
            kwargs={"env": env, "render_mode": render_mode, **kwargs},
        )
        self._last: str | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._last = text_of(observation)
        return self._last, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        step = self.env.step(action)
        self._last = text_of(step.observation)
        return self._last, float(step.reward), step.terminated, step.truncated, step.info

    def render(self) -> str | None:
        """Return the last observation."""
        if self.render_mode is None:
            return None
        if self._last is None:
            raise ResetNeeded("call reset() before render()")
        return self._last

    def close(self) -> None:
        self.env.close()

    def _random_action(self, seed: int) -> str:
        if self._last is None:  # before the first episode, sample from another instance
            player = self.env.spawn()
            player.reset(seed=seed)
        else:
            player = self.env.fork()
        player.unwrapped._player_rng = Random(seed)
        try:
            return player.sample_random_action()
        except BadValue:  # the env has no random player
            return AnyText(seed=seed).sample()


to_gymnasium = ToGymnasium


def register_all(family: str | None = None) -> list[str]:
    """Register all Palestra ids, or those of one family, with Gymnasium; return the Gymnasium ids."""
    names = [(_gymnasium_id(env_id), env_id) for env_id in list_envs(family)]
    for name, env_id in names:
        if name not in gymnasium.registry:
            gymnasium.register(name, "palestra.integrations.gymnasium:ToGymnasium", kwargs={"env": env_id})
    return [name for name, _ in names]


def _gymnasium_id(env_id: str) -> str:
    return f"palestra/{env_id.replace(':', '.', 1)}"

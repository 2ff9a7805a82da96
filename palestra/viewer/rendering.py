"""Render the states in a stored episode by replaying its actions.

Renderings are not stored, because the same seed and actions reproduce the states. The replay's observations are
compared with the stored ones, and nothing is displayed if they differ. Only registered environments are created, and
only with keyword arguments that cannot be file names.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from palestra.core import Env
from palestra.errors import BadValue, UsageError
from palestra.plugins import import_object
from palestra.registry import get_registered_spec, make
from palestra.spec import SPLITS
from palestra.types import Observation
from palestra.viewer.folder import NotFound

MOST = 500  # maximum number of turns to replay
LONGEST = 20.0  # maximum seconds for a replay
MAX_CACHED = 4  # maximum number of cached episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Rendering of a state: PNG bytes or text."""

    text: str | None = None
    image: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "image": self.image is not None}


def drawn(env: Env) -> Rendering | None:
    """Return the rendering of the current state, or None if the environment has no renderer."""
    image = env.render("image")
    if isinstance(image, bytes):
        return Rendering(image=image)
    text = env.render("text")
    return Rendering(text=text) if isinstance(text, str) and text else None


def can_draw(data: Mapping[str, Any]) -> bool:
    """Return whether the environment of a stored episode has a renderer, without creating it."""
    try:
        kind = import_object(get_registered_spec(data["env_id"]).entry_point)
    except (UsageError, ImportError, AttributeError):
        return False
    return getattr(kind, "render", Env.render) is not Env.render and _accepted(data)


def _accepted(data: Mapping[str, Any]) -> bool:
    kwargs = data.get("kwargs") or {}
    if kwargs.get("split") in SPLITS:  # training and evaluations set it
        kwargs = {key: value for key, value in kwargs.items() if key != "split"}
    return all(value is None or isinstance(value, (bool, int, float)) for value in kwargs.values())


class Renderer:
    """Renders episodes and caches the most recent ones."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, str], list[Rendering]] = {}
        self._lock = threading.Lock()

    def of(self, run: str, at: str, data: Mapping[str, Any]) -> list[Rendering]:
        """Return renderings of the state before each turn, and of the final state; raise BadValue on failure."""
        renderings = replay(data)
        with self._lock:
            self._cache[run, at] = renderings
            while len(self._cache) > MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
        return renderings

    def picture(self, run: str, at: str, n: int) -> bytes:
        with self._lock:
            views = self._cache.get((run, at), [])
        image = views[n].image if 0 <= n < len(views) else None
        if image is None:
            raise NotFound("no such image; render the episode again")
        return image


def replay(data: Mapping[str, Any]) -> list[Rendering]:
    """Replay a stored episode and return its renderings; raise BadValue if it cannot be replayed."""
    kwargs = data.get("kwargs") or {}
    if not _accepted(data):
        raise BadValue("a replay accepts only numbers and splits as keyword arguments, but the episode has others")
    turns = data["turns"][:MOST]
    seed = data.get("seed")
    if not isinstance(seed, int):
        raise BadValue("the episode's seed is unknown")
    shown = [turn["observation"] for turn in turns] + [data["final_observation"]]
    env = make(get_registered_spec(data["env_id"]).id, **kwargs)
    try:
        return _states(env, seed, [turn["text"] for turn in turns], shown)
    finally:
        env.close()


def _states(env: Env, seed: int, actions: Sequence[str], shown: Sequence[Any]) -> list[Rendering]:
    until = monotonic() + LONGEST
    observation, _ = env.reset(seed=seed)
    first = drawn(env)
    if first is None:
        raise BadValue("this environment has no renderer")
    views = [first]
    for i, action in enumerate(actions):
        _same(observation, shown[i], i)
        if monotonic() > until:
            break
        observation = env.step(action).observation
        views.append(drawn(env) or Rendering())
    return views


def _same(now: Observation, stored: Any, turn: int) -> None:
    """Raise BadValue if two observations differ; only the text of observations with images is compared."""
    if _words(now) != _words(stored):
        raise BadValue(
            f"the observation in turn {turn + 1} differs from the stored one: the environment was wrapped (tools, "
            "history) or has another version"
        )


def _words(observation: Any) -> str:
    if isinstance(observation, str):
        return observation
    return "".join(part.get("text", "") for part in observation if isinstance(part, Mapping))

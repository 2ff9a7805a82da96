"""A stored episode -> its states as the environment draws them for people, by playing its actions once more.

What is drawn is not stored, but the same seed and actions give the same states; that they did is checked against the
stored observations, and where they do not nothing is shown. Only registered environments are made, with keywords that
cannot name a file, and only those that can draw.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from palestra.core import Env
from palestra.errors import BadValue
from palestra.registry import get_registered_spec, make
from palestra.types import Observation
from palestra.viewer.folder import NotThere

MOST = 500  # turns that are played again
LONGEST = 20.0  # seconds
KEPT = 4  # episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A state: a PNG, or text."""

    text: str | None = None
    image: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "image": self.image is not None}


def drawn(env: Env) -> View | None:
    """How `env` looks now; None where it does not draw."""
    image = env.render("image")
    if isinstance(image, bytes):
        return View(image=image)
    text = env.render("text")
    return View(text=text) if isinstance(text, str) and text else None


class Renderings:
    """Draws episodes, and keeps the last few for their pictures."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], list[View]] = {}
        self._lock = threading.Lock()

    def of(self, run: str, at: str, data: Mapping[str, Any]) -> list[View]:
        """A view before each turn, and one of the end; BadValue says why there are none."""
        found = replay(data)
        with self._lock:
            self._kept[run, at] = found
            while len(self._kept) > KEPT:
                self._kept.pop(next(iter(self._kept)))
        return found

    def picture(self, run: str, at: str, n: int) -> bytes:
        with self._lock:
            views = self._kept.get((run, at), [])
        image = views[n].image if 0 <= n < len(views) else None
        if image is None:
            raise NotThere("there is no such picture; let the episode be drawn again")
        return image


def replay(data: Mapping[str, Any]) -> list[View]:
    """The states of a stored episode; BadValue where they cannot be had again."""
    kwargs = data.get("kwargs") or {}
    if not all(value is None or isinstance(value, (bool, int, float)) for value in kwargs.values()):
        raise BadValue("it was played with keywords that are not taken from a file")
    turns = data["turns"][:MOST]
    seed = data.get("seed")
    if not isinstance(seed, int):
        raise BadValue("its seed is not known")
    shown = [turn["observation"] for turn in turns] + [data["final_observation"]]
    env = make(get_registered_spec(data["env_id"]).id, **kwargs)
    try:
        return _states(env, seed, [turn["text"] for turn in turns], shown)
    finally:
        env.close()


def _states(env: Env, seed: int, actions: Sequence[str], shown: Sequence[Any]) -> list[View]:
    until = monotonic() + LONGEST
    observation, _ = env.reset(seed=seed)
    first = drawn(env)
    if first is None:
        raise BadValue("this environment draws nothing beside its observations")
    views = [first]
    for i, action in enumerate(actions):
        _same(observation, shown[i], i)
        if monotonic() > until:
            break
        observation = env.step(action).observation
        views.append(drawn(env) or View())
    return views


def _same(now: Observation, stored: Any, turn: int) -> None:
    """Pictures are compared by the words beside them."""
    if _words(now) != _words(stored):
        raise BadValue(
            f"the environment shows something else than was stored in turn {turn + 1}: it was wrapped (tools, history) "
            "or is of another version"
        )


def _words(observation: Any) -> str:
    if isinstance(observation, str):
        return observation
    return "".join(part.get("text", "") for part in observation if isinstance(part, Mapping))

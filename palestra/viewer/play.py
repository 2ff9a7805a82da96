"""Play registered environments in the browser; finished episodes can be saved as trajectories."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, perf_counter, time
from typing import Any

from palestra import __version__
from palestra.core import Env
from palestra.errors import BadValue, StoreFailed
from palestra.parsing import boxed, last_boxed
from palestra.registry import get_registered_spec, list_envs, make
from palestra.rollout.codec import to_json
from palestra.rollout.store import Writer
from palestra.rollout.types import Trajectory, Turn
from palestra.threads import call_with_timeout
from palestra.types import Action, Observation, finite_reward
from palestra.viewer.episode_json import episode
from palestra.viewer.folder import SETTINGS, STORED, Folder, NotFound
from palestra.viewer.rendering import Rendering, drawn

HOME = "played"  # name of the run in which episodes are saved
FILE = "episodes.jsonl"
MOST = 16  # maximum number of concurrent games; the least recently used one is closed
LONGEST = 100_000  # maximum characters in an action


@dataclass(slots=True, kw_only=True)
class Game:
    """One episode in progress."""

    env_id: str
    env: Env
    seed: int
    observation: Observation
    first_info: dict[str, Any]
    started: float
    clock_start: float
    turns: list[Turn] = field(default_factory=list)
    views: list[Rendering | None] = field(default_factory=list)  # one rendering per state so far
    helped: int = 0  # number of actions proposed by the expert or the random player
    saved: str | None = None  # FILE:NUMBER of the saved episode
    lock: threading.Lock = field(default_factory=threading.Lock)
    used: float = 0.0
    clock: float = 0.0

    @property
    def over(self) -> bool:
        return bool(self.turns) and (self.turns[-1].terminated or self.turns[-1].truncated)

    def trajectory(self) -> Trajectory:
        return Trajectory(
            env_id=self.env_id,
            kwargs={},
            seed=self.seed,
            group=0,
            member=0,
            turns=tuple(self.turns),
            final_observation=self.observation,
            success=bool(self.turns[-1].info.get("success")) if self.over else None,
            started=self.started,
            seconds=(self.clock if self.over else perf_counter()) - self.clock_start,
            meta={"player": "human", "helped": self.helped},
        )


class GameStore:
    """The games in progress."""

    def __init__(
        self, folder: Folder, *, step_timeout: float | None = None, reset_timeout: float | None = None
    ) -> None:
        self.folder = folder
        self.step_timeout = step_timeout
        self.reset_timeout = reset_timeout
        self._games: dict[str, Game] = {}
        self._lock = threading.Lock()

    def envs(self) -> list[dict[str, Any]]:
        """List the environments that can be played."""
        entries = []
        for env_id in list_envs():
            spec = get_registered_spec(env_id)
            entries.append({"id": env_id, "summary": spec.summary, "needs_data": spec.needs_data})
        return entries

    def start(self, env_id: str, seed: int | None) -> str:
        """Start a game in a registered environment, with its registered keyword arguments, and return its name."""
        env = make(get_registered_spec(env_id).id)
        observation, info = call_with_timeout("reset", env.reset, self.reset_timeout, seed)
        now = perf_counter()
        game = Game(
            env_id=env_id,
            env=env,
            seed=int(info["seed"]),
            observation=observation,
            first_info=info,
            started=time(),
            clock_start=now,
            clock=now,
            used=monotonic(),
            views=[drawn(env)],
        )
        name = secrets.token_urlsafe(9)
        with self._lock:
            self._games[name] = game
            oldest = sorted(self._games, key=lambda key: self._games[key].used)[:-MOST]
            replaced = [self._games.pop(key) for key in oldest]
        for old in replaced:
            old.env.close()
        return name

    def state(self, name: str) -> dict[str, Any]:
        game = self._game(name)
        with game.lock:
            return self._shown(name, game)

    def move(self, name: str, text: str, *, box: bool) -> dict[str, Any]:
        """Take an action. With `box`, add a missing \\boxed{}, and reject an action that cannot be read."""
        if len(text) > LONGEST:
            raise BadValue(f"an action may have at most {LONGEST:,} characters")
        game = self._game(name)
        with game.lock:
            if game.over:
                raise BadValue("the episode has ended; start a new one")
            if box and _boxes(game.env) and last_boxed(text) is None:
                text = boxed(text.strip())
            if box and not game.env.can_read(text):
                hint = f" A valid action is {example}" if (example := _example(game.env)) else ""
                raise BadValue(f"your action could not be read, so it does not use a turn.{hint}")
            thought = perf_counter()
            step = call_with_timeout("step", game.env.step, self.step_timeout, text)
            acted = perf_counter()
            game.turns.append(
                Turn(
                    observation=game.observation,
                    action=Action(text=text),
                    reward=finite_reward(step.reward),
                    terminated=step.terminated,
                    truncated=step.truncated,
                    info=step.info,
                    agent_seconds=thought - game.clock,
                    env_seconds=acted - thought,
                )
            )
            game.observation, game.clock = step.observation, acted
            game.views.append(drawn(game.env))
            return self._shown(name, game)

    def propose(self, name: str, player: str) -> str | None:
        """Return an action from the expert or the random player, or None if the environment has no such player."""
        game = self._game(name)
        with game.lock:
            if game.over:
                raise BadValue("the episode has ended; start a new one")
            choose: Callable[[], str | None] = game.env.expert_action
            if player == "random":
                choose = game.env.sample_random_action
            elif player != "expert":
                raise BadValue(f"`player` must be 'expert' or 'random'; got {player!r}")
            text = choose()
            game.helped += text is not None
            return text

    def save(self, name: str) -> dict[str, Any]:
        """Save a finished episode to the `played` run."""
        game = self._game(name)
        with game.lock:
            if not game.over:
                raise BadValue("only finished episodes can be saved")
            if game.saved is None:
                game.saved = self._write(game.trajectory())
            return self._shown(name, game)

    def close(self) -> None:
        """Close all games."""
        with self._lock:
            games, self._games = list(self._games.values()), {}
        for game in games:
            game.env.close()

    def _write(self, trajectory: Trajectory) -> str:
        home = self.folder.path / HOME
        try:
            (home / STORED).mkdir(parents=True, exist_ok=True)
            self.folder.inside(home / STORED)
            path = home / STORED / FILE
            if path.is_symlink():
                raise StoreFailed(f"{path} is a symbolic link; refusing to write through it")
            settings = home / SETTINGS
            if not settings.exists():
                settings_json = {"kind": "play", "versions": {"palestra": __version__}, "command": ["palestra", "view"]}
                settings.write_text(json.dumps(settings_json, indent=2) + "\n", encoding="utf-8")
            with Writer(path) as writer:
                writer.write(trajectory)
            with path.open("rb") as file:
                lines = sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
        except (OSError, NotFound) as err:
            raise StoreFailed(f"could not save the episode in {home}: {err}") from err
        return f"{STORED}/{FILE}:{lines - 1}"

    def _game(self, name: str) -> Game:
        with self._lock:
            game = self._games.get(name)
            if game is None:
                raise NotFound("this game no longer exists: the viewer was restarted, or newer games replaced it")
            game.used = monotonic()
            return game

    def _shown(self, name: str, game: Game) -> dict[str, Any]:
        data = to_json(game.trajectory()) | {"first_info": game.first_info}
        view = episode(data, gamma=1.0, advantages=None)
        return view | {
            "game": name,
            "over": game.over,
            "saved": game.saved,
            "run": HOME,
            "boxes": _boxes(game.env),
            "example": _example(game.env),
            "max_turns": game.env.max_turns,
            "helped": game.helped,
            "views": [None if view is None else view.to_json() for view in game.views],
        }

    def drawing(self, name: str, n: int) -> bytes:
        """Return the image of the state before turn `n`."""
        views = self._game(name).views
        view = views[n] if 0 <= n < len(views) else None
        if view is None or view.image is None:
            raise NotFound("no such image")
        return view.image

    def picture_of(self, name: str) -> dict[str, Any]:
        """Return a game in the format of stored episodes; used to read its images."""
        game = self._game(name)
        with game.lock:
            return to_json(game.trajectory())


def _example(env: Env) -> str:
    try:
        return env.example_action()
    except BadValue:  # the environment has no example action
        return ""


def _boxes(env: Env) -> bool:
    return last_boxed(_example(env)) is not None

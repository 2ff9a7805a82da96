"""Test that stored episodes are rendered only by an environment that reproduces them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.agents import ExpertAgent
from palestra.core import Env, Reset
from palestra.errors import BadValue, UsageError
from palestra.registry import unregister
from palestra.rollout.codec import to_json
from palestra.types import Step
from palestra.viewer.folder import Folder, NotFound
from palestra.viewer.play import GameStore
from palestra.viewer.rendering import Renderer, can_draw, replay
from tests.viewer.sample_runs import GUESS, picture, played

DRAWN = "test:Drawn-v0"


class Drawn(Env):
    """Environment in which the agent climbs to a height that depends on the seed; it renders the current height."""

    inline = True

    def __init__(self, *, most: int = 3, path: str | None = None) -> None:
        self.most = most
        self.path = path

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.start_episode(seed)
        self.wanted = self.rng.randrange(1, self.most + 1)
        self.height = 0
        return f"climb {self.wanted}", {"seed": self.seed}

    def step(self, action: str) -> Step:
        self.height += action == "up"
        done = self.height == self.wanted
        return Step(f"at {self.height}", float(done), done, False, {"success": done})

    def expert_action(self) -> str:
        return "up"

    def render(self, mode: str = "text") -> str | bytes | None:
        return picture((self.height, 0, 0)) if mode == "image" else f"height {self.height}"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    palestra.register(DRAWN, Drawn)
    yield
    unregister(DRAWN)


def test_every_state_is_drawn() -> None:
    episode = next(t for t in played(ExpertAgent(), DRAWN, 9) if len(t.turns) == 3)
    views = replay(to_json(episode))
    assert [view.image for view in views] == [picture((height, 0, 0)) for height in range(4)]
    saved = Renderer()
    saved.of("run", "a:0", to_json(episode))
    assert saved.picture("run", "a:0", 2) == picture((2, 0, 0))
    for n in (-1, 4):
        with pytest.raises(NotFound):
            saved.picture("run", "a:0", n)


def test_differing_replay_is_not_rendered() -> None:
    episode = played(ExpertAgent(), DRAWN, 1)[0]
    other = replace(episode, turns=(replace(episode.turns[0], observation="climb something else"), *episode.turns[1:]))
    with pytest.raises(BadValue, match="turn 1 differs from the stored one"):
        replay(to_json(other))


def test_only_episodes_with_a_renderer_can_be_drawn() -> None:
    episode = played(ExpertAgent(), DRAWN, 1)[0]
    assert can_draw(to_json(episode))
    assert can_draw(to_json(replace(episode, kwargs={"split": "test"})))  # set by evaluations
    for kwargs in ({"path": "/etc/passwd"}, {"split": "/etc/passwd"}, {"split": "test", "path": "x"}):
        assert not can_draw(to_json(replace(episode, kwargs=kwargs)))
    assert not can_draw(to_json(played(ExpertAgent(), GUESS, 1)[0]))
    assert not can_draw(to_json(replace(episode, env_id="os:system")))


def test_env_without_renderer() -> None:
    with pytest.raises(BadValue, match="no renderer"):
        replay(to_json(played(ExpertAgent(), GUESS, 1)[0]))


def test_a_stored_episode_cannot_name_files_or_classes() -> None:
    episode = played(ExpertAgent(), DRAWN, 1)[0]
    assert replay(to_json(replace(episode, kwargs={"most": 3})))
    with pytest.raises(BadValue, match="keyword arguments"):
        replay(to_json(replace(episode, kwargs={"path": "/etc/passwd"})))
    for name in ("os:system", "builtins:eval", "../x"):
        with pytest.raises(UsageError):
            replay(to_json(replace(episode, env_id=name)))


def test_games_are_drawn_while_they_are_played(tmp_path: Path) -> None:
    table = GameStore(Folder(tmp_path))
    game = table.start(DRAWN, 1)
    assert table.state(game)["views"] == [{"text": None, "image": True}]
    state = table.move(game, "up", box=True)
    assert len(state["views"]) == 2
    assert table.drawing(game, 1) == picture((1, 0, 0))
    with pytest.raises(NotFound):
        table.drawing(game, 2)
    table.close()

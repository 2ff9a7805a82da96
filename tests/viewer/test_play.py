"""Test playing over HTTP, and training on the saved episodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palestra import make, register, unregister
from palestra.cli import main
from palestra.errors import EnvFailed, StoreFailed
from palestra.rollout import read
from palestra.viewer.folder import Folder
from palestra.viewer.play import GameStore
from tests.rollout.test_faulty_envs import OneStep
from tests.viewer.sample_runs import GUESS
from tests.viewer.server import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(folder, tmp_path_factory.mktemp("cache"))
    yield server
    assert server.close() == ""


def played(server: Server, env: str, seed: int) -> dict[str, Any]:
    """Play one episode with the expert's actions."""
    state: dict[str, Any] = server.post("play", {"env": env, "seed": seed}).json
    while not state["over"]:
        action = server.post("play/propose", {"player": "expert"}, game=state["game"]).json["text"]
        state = server.post("play/move", {"text": action}, game=state["game"]).json
    return state


def test_a_saved_game_equals_an_episode_of_the_environment(server: Server, folder: Path) -> None:
    state = played(server, GUESS, seed=11)
    assert state["outcome"] == "solved"
    saved = server.post("play/save", game=state["game"]).json
    assert saved["saved"] == "trajectories/episodes.jsonl:0"
    assert (
        server.post("play/save", game=state["game"]).json["saved"] == saved["saved"]
    )  # the episode is not saved twice
    (stored,) = read(folder / "played" / "trajectories" / "episodes.jsonl")
    env = make(GUESS)
    observation, _ = env.reset(seed=11)
    for turn in stored.turns:
        assert turn.observation == observation
        step = env.step(turn.action.text)
        assert (turn.reward, turn.terminated, turn.truncated) == (step.reward, step.terminated, step.truncated)
        observation = step.observation
    assert stored.final_observation == observation
    assert (stored.success, stored.seed, stored.meta["player"]) == (True, 11, "human")
    assert stored.meta["helped"] == len(stored.turns)
    server.until_read("played", 1)
    shown = server.get("episode", run="played", at=saved["saved"])
    assert [turn["text"] for turn in shown["turns"]] == [turn.action.text for turn in stored.turns]
    assert server.get("run", run="played")["kind"] == "play"


def test_moves_without_a_box_get_one(server: Server) -> None:
    game = server.post("play", {"env": GUESS, "seed": 1}).json["game"]
    state = server.post("play/move", {"text": "I think it is\n\\boxed{10}"}, game=game).json
    assert state["turns"][-1]["text"] == "I think it is\n\\boxed{10}"
    if not state["over"]:
        state = server.post("play/move", {"text": " 1 "}, game=game).json
        assert state["turns"][-1]["text"] == "\\boxed{1}"
    if not state["over"]:
        state = server.post("play/move", {"text": "5", "box": False}, game=game).json
        assert state["turns"][-1]["text"] == "5"


def test_invalid_requests_are_refused(server: Server) -> None:
    state = server.post("play", {"env": GUESS, "seed": 1}).json
    game = state["game"]
    assert server.post("play/save", game=game).status == 400  # the game has not ended
    assert server.post("play/move", {"text": "x" * 200_000}, game=game).status == 400
    assert server.post("play/propose", {"player": "oracle"}, game=game).status == 400
    assert server.post("play/move", {"text": "1"}, game="none").status == 404
    unreadable = server.post("play/move", {"text": "no number"}, game=game)
    assert (unreadable.status, "does not use a turn" in str(unreadable.json)) == (400, True)
    over = server.post("play/move", {"text": "no number", "box": False}, game=game).json
    assert over["over"]
    assert server.post("play/move", {"text": "1"}, game=game).status == 400


def test_new_games_replace_the_least_recently_used(server: Server) -> None:
    names = [server.post("play", {"env": GUESS, "seed": 1}).json["game"] for _ in range(20)]
    alive = [server.request(f"/api/play?game={name}").status == 200 for name in names]
    assert alive == [False] * 4 + [True] * 16


def play_and_save(server: GameStore) -> None:
    game = server.start(GUESS, 1)
    assert server.move(game, "no number", box=False)["over"]
    server.save(game)


def test_calls_of_a_hung_environment_end_at_their_timeout(tmp_path: Path) -> None:
    register("hung:Step-v0", OneStep, kwargs={"hangs": "step"})
    register("hung:Reset-v0", OneStep, kwargs={"hangs": "reset"})
    try:
        with pytest.raises(EnvFailed, match="reset took longer than"):
            GameStore(Folder(tmp_path), reset_timeout=0.02).start("hung:Reset-v0", 1)
        games = GameStore(Folder(tmp_path), step_timeout=0.02)
        game = games.start("hung:Step-v0", 1)
        with pytest.raises(EnvFailed, match="step took longer than"):
            games.move(game, "yes", box=False)
    finally:
        unregister("hung:Step-v0")
        unregister("hung:Reset-v0")


def test_unwritable_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "played").write_text("a file instead of a folder")
    with pytest.raises(StoreFailed, match="could not save"):
        play_and_save(GameStore(Folder(tmp_path)))


def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "played").symlink_to(outside)
    with pytest.raises(StoreFailed, match="could not save"):
        play_and_save(GameStore(Folder(tmp_path / "runs")))
    assert [path for path in outside.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_sft_trains_on_played_episodes(server: Server, folder: Path) -> None:
    for seed in range(3):
        assert server.post("play/save", game=played(server, GUESS, seed)["game"]).status == 200
    command = ["train", "--algo", "sft", "--data", str(folder / "played"), "--model", "default:0.1M", "--threads", "1"]
    command += ["--out", str(folder / "cloned"), "--batch", "2", "--epochs", "1", "--quiet"]
    assert main(command) == 0
    steps = len(server.get("curves", run="cloned")["training"]["loss"])
    assert steps == server.get("run", run="cloned")["done"] > 0

"""Test the viewer's JSON API for runs and episodes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import palestra
from palestra.engines import ByteTokenizer
from palestra.errors import EngineFailed
from palestra.folders import error_record
from palestra.rollout import read
from palestra.viewer.episode_json import episode
from palestra.viewer.folder import Folder
from palestra.viewer.records import RunReader
from palestra.viewer.tokens import pieces
from tests.viewer.sample_runs import GUESS, NASTY, TOKENIZER, training_run
from tests.viewer.server import Server

STEP = "trajectories/step-000001.jsonl.gz"
EVALUATIONS = {"evaluated/expert", "evaluated/random"}


def test_every_kind_of_run_is_listed(server: Server) -> None:
    server.until_read("trained", 32)
    cards = {card["name"]: card for card in server.get("runs")["runs"]}
    assert (
        set(cards)
        == {"trained", "deeper/other", "expert", "random", "failing", "nasty", "loose.jsonl.gz"} | EVALUATIONS
    )
    trained = cards["trained"]
    assert (trained["kind"], trained["done"], trained["planned"], trained["algorithm"]) == ("train", 4, 6, "rebn")
    assert trained["success"] == pytest.approx(0.5)  # the success rate of the last evaluation
    assert cards["nasty"]["kind"] == "eval"
    assert cards["nasty"]["envs"] == [NASTY.partition("=")[0]]
    server.until_read("expert", 8)
    assert {c["name"]: c for c in server.get("runs")["runs"]}["expert"]["success"] == 1.0


def test_curves_over_steps_tokens_and_time(server: Server) -> None:
    curves = server.get("curves", run="trained")
    assert curves["training"]["step"] == [0, 1, 2, 3]  # a step's episodes are sampled before its update
    assert curves["training"]["tokens"] == [0, 64, 128, 192]
    assert curves["training"]["time"] == [0, 1, 2, 3]
    assert curves["evaluations"]["step"] == [2, 4]  # evaluations are done after the update
    assert curves["evaluations"]["success"] == pytest.approx([0.3, 0.5])
    assert curves["stages"] == [
        {"turns": 2, "step": 0, "tokens": 0, "time": 0},
        {"turns": 4, "step": 2, "tokens": 128, "time": 2},
    ]


def test_an_episode_contains_turns_returns_and_advantages(server: Server, runs: Path) -> None:
    server.until_read("trained", 32)
    batch = list(read(runs / "trained" / STEP))

    def to_go(rewards: list[float]) -> list[float]:
        return [sum(r * 0.5**k for k, r in enumerate(rewards[i:])) for i in range(len(rewards))]

    returns = [g for t in batch for g in to_go(t.rewards)]
    for n, stored in enumerate(batch):
        shown = server.get("episode", run="trained", at=f"{STEP}:{n}")
        assert [turn["text"] for turn in shown["turns"]] == [turn.action.text for turn in stored.turns]
        assert [turn["to_go"] for turn in shown["turns"]] == pytest.approx(to_go(stored.rewards))
        expected = [(g - mean(returns)) / stdev(returns) for g in to_go(stored.rewards)]  # definition of ReBN
        assert [turn["advantage"] for turn in shown["turns"]] == pytest.approx(expected)
        assert "rebn from the stored rewards of the 8 episodes of step 1" in shown["advantage_source"]


def test_missing_advantages_are_explained(server: Server) -> None:
    server.until_read("expert", 8)
    shown = server.get("episode", run="expert", at="episodes.jsonl:0")
    assert {turn["advantage"] for turn in shown["turns"]} == {None}
    assert shown["advantage_source"] == "the episode was not used for training"


def test_boards_are_separate_parts(server: Server) -> None:
    server.until_read("expert", 8)
    shown = server.get("episode", run="expert", at="episodes.jsonl:0")
    for turn in shown["turns"]:
        text, board = turn["shown"]["parts"]
        assert text["type"] == "text"
        assert board["type"] == "board"
        assert set(board["text"]) <= set("#_OXPS√ \n")


@pytest.mark.parametrize("name", ["Crosswords", "Sokoban", "TowerofHanoi", "Wordle", "WordSearch"])
def test_the_first_board_is_found_in_the_prompt(name: str) -> None:
    env = palestra.make(f"game:{name}-v0-easy")
    prompt, info = env.reset(seed=0)
    step = env.step(env.sample_random_action())
    turn = {
        "observation": prompt,
        "text": "",
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
        "info": step.info,
    }
    data = {"env_id": f"game:{name}-v0-easy", "turns": [turn], "final_observation": step.observation}
    parts = episode(data, gamma=1.0, advantages=None)["turns"][0]["shown"]["parts"]
    assert [part["text"] for part in parts if part["type"] == "board"] == ([info["suffix"]] if info["suffix"] else [])


def test_tokens_equal_the_stored_ones(server: Server, runs: Path) -> None:
    server.until_read("trained", 32)
    stored = next(iter(read(runs / "trained" / STEP)))
    tokens = server.get("tokens", run="trained", at=f"{STEP}:0")
    (sequence,) = tokens["sequences"]
    assert tokens["tokenizer"] == "trained/last/tokenizer.json"
    sampled = [span for span in sequence["spans"] if not span["is_prompt"]]
    assert [span["ids"] for span in sampled] == [turn.action.action_ids for turn in stored.turns]
    assert [span["logprobs"] for span in sampled] == [turn.action.logprobs for turn in stored.turns]
    assert ["".join(span["pieces"]) for span in sampled] == [turn.action.text for turn in stored.turns]
    everything = [i for span in sequence["spans"] for i in span["ids"]]
    assert everything == stored.turns[-1].action.prompt_ids + stored.turns[-1].action.action_ids


def test_without_a_tokenizer_ids_are_shown(server: Server) -> None:
    server.until_read("failing", 6)
    rows = server.get("episodes", run="failing", outcome="unsolved")["rows"]
    tokens = server.get("tokens", run="failing", at=rows[0]["at"])
    assert not tokens["decoded"]
    assert "no tokenizer" in tokens["tokenizer"]
    assert tokens["sequences"][0]["spans"][0]["pieces"] is None


@given(st.text(max_size=60))
def test_pieces_join_to_the_text(text: str) -> None:
    class Bytes:
        """Byte-level tokenizer that decodes an incomplete character as a replacement character."""

        def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
            return bytes(ids).decode(errors="replace")

    ids = list(text.encode("utf-8", errors="ignore"))
    decoded = bytes(ids).decode()
    if "\ufffd" not in decoded:
        assert "".join(pieces(ids, Bytes())) == decoded
    real = Tokenizer.from_file(str(TOKENIZER))
    coded = real.encode(decoded, add_special_tokens=False).ids
    if real.decode(coded, skip_special_tokens=False) == decoded and "\ufffd" not in decoded:
        assert "".join(pieces(coded, real)) == decoded
    assert len(pieces(coded, real)) == len(coded)
    assert ByteTokenizer().encode(decoded)[: len(ids)] == ids or "<|" in decoded


def test_failed_episodes_are_marked(server: Server) -> None:
    server.until_read("failing", 6)
    listed = server.get("episodes", run="failing", error="any")
    assert listed["total"]["episodes"] == listed["total"]["failed"] > 0
    assert {row["error"] for row in listed["rows"]} == {"engine: EngineFailed"}
    shown = server.get("episode", run="failing", at=listed["rows"][0]["at"])
    assert shown["failure"]["boundary"] == "engine"
    assert shown["outcome"] == "failed"


def test_images_are_served_with_their_content_type(server: Server) -> None:
    server.until_read("nasty", 1)
    reply = server.request("/api/picture?run=nasty&at=episodes.jsonl:0&turn=1&part=1")
    assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
    assert reply.body.startswith(b"\x89PNG")
    assert server.request("/api/picture?run=nasty&at=episodes.jsonl:0&turn=1&part=0").status == 422


def test_episodes_of_the_same_task_in_other_runs_are_listed(server: Server) -> None:
    server.until_read("expert", 8)
    server.until_read("random", 8)
    shown = server.get("episode", run="expert", at="episodes.jsonl:2")
    assert [(other["run"], other["at"]) for other in shown["same_task"]] == [("random", "episodes.jsonl:2")]


def test_missing_items_and_invalid_queries_return_errors(server: Server) -> None:
    server.until_read("expert", 8)
    for path in (
        "/api/run?run=none",
        "/api/episode?run=expert&at=episodes.jsonl:99",
        "/api/episode?run=expert&at=other.jsonl:0",
        "/api/episode?run=expert&at=nonsense",
    ):
        reply = server.request(path)
        assert reply.status == 404
        assert reply.json["problem"]
    assert server.request("/api/episodes?run=expert&outcome=sideways").status == 400
    assert server.request("/api/episodes?run=expert&sort=sideways").status == 400


def test_nan_and_infinity_become_null(server: Server, runs: Path) -> None:
    run = runs / "odd"
    run.mkdir()
    rows = [{"step": 0, "success": float("nan"), "return": 1.0}, {"step": 1, "success": 0.5, "return": float("inf")}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 2, "succ')
    try:
        curves = server.get("curves", run="odd")
        assert curves["training"]["success"] == [None, 0.5]
        assert curves["training"]["return"] == [1.0, None]
    finally:
        (run / "metrics.jsonl").unlink()
        run.rmdir()


def test_recordings_of_the_record_wrapper_are_read(server: Server, runs: Path) -> None:
    from palestra import make
    from palestra.wrappers import Record

    path = runs / "recorded.jsonl"
    try:
        with Record(make(GUESS), path) as env:
            observation, _ = env.reset(seed=4)
            while not env.step(env.expert_action() or "").done:
                pass
        server.until_read("recorded.jsonl", 1)
        shown = server.get("episode", run="recorded.jsonl", at="recorded.jsonl:0")
        assert shown["outcome"] == "solved"
        assert shown["turns"][0]["shown"]["parts"][0]["text"] == observation
    finally:
        path.unlink()


def test_states_of_runs(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for name in ("stopped", "failed", "running", "finished"):
        run = training_run(tmp_path / name, steps=0)
        if name == "failed":
            with pytest.raises(EngineFailed), error_record(run):
                raise EngineFailed("the server exited")
        if name == "finished":
            (run / "metrics.jsonl").write_text('{"step": 5}\n')  # the last of six
        if name == "stopped":
            for path in run.iterdir():
                os.utime(path, (0, 0))
    reader = RunReader(folder)
    assert {place.name: reader.card(place)["state"] for place in folder.runs()} == {
        "stopped": "stopped",
        "failed": "failed",
        "running": "running",
        "finished": "finished",
    }
    assert reader.card(folder.run("failed"))["error"] == "EngineFailed: the server exited"
    with error_record(tmp_path / "failed"):  # the next process removes the record
        pass
    assert reader.card(folder.run("failed"))["state"] == "running"


def test_a_comparison_names_the_episodes_behind_every_difference(server: Server, runs: Path) -> None:
    for run in EVALUATIONS:
        server.until_read(run, 8)
    result = server.get("comparison", before="evaluated/random", after="evaluated/expert")
    (row,) = result["envs"]
    assert row["wins"]
    assert not row["losses"]
    for task in row["wins"]:
        before = server.get("episode", run="evaluated/random", at=task["before_at"])
        after = server.get("episode", run="evaluated/expert", at=task["after_at"])
        assert (before["seed"], after["seed"]) == (task["seed"], task["seed"])
        assert (before["outcome"] == "solved", after["outcome"]) == (False, "solved")
    refused = server.request("/api/comparison?before=trained&after=evaluated/expert")
    assert (refused.status, "trained contains no evaluation" in refused.json["problem"]) == (404, True)

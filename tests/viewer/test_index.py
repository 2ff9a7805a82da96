"""Test the index of complete, growing and replaced files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from palestra.agents import RandomAgent
from palestra.rollout.codec import to_json
from palestra.viewer.folder import Folder, NotFound
from palestra.viewer.index import Filter, Index
from palestra.viewer.indexer import Indexer
from palestra.viewer.lines import scan
from palestra.viewer.records import RunReader
from tests.viewer.sample_runs import GUESS, nasty_episode, played, store, training_run
from tests.viewer.server import Server, until


class Watched:
    """Folder with its index and indexing thread, as in the viewer."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        self.index = Index(self.folder.path)
        self.indexer = Indexer(self.folder, self.index)
        self.indexer.start()

    def wait_for(self, run: str, episodes: int) -> None:
        self.indexer.wake(run)
        until(lambda: not self.indexer.reading(run) and self.index.progress(run)["episodes"] == episodes)

    def close(self) -> None:
        self.indexer.stop()
        self.index.close()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALESTRA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def watched(runs: Path) -> Iterator[Watched]:
    watched = Watched(runs)
    yield watched
    watched.close()


@pytest.mark.parametrize("name", ["episodes.jsonl", "episodes.jsonl.gz"])
def test_a_growing_file_is_indexed_without_its_partial_line(runs: Path, watched: Watched, name: str) -> None:
    episodes = played(RandomAgent(), GUESS, 6)
    path = store(runs / "a" / name, episodes[:2])
    watched.wait_for("a", 2)
    store(path, episodes[2:4])
    watched.wait_for("a", 4)
    complete = path.read_bytes()
    store(path, episodes[4:])
    extended = path.read_bytes()
    path.write_bytes(extended)  # the inode does not change
    watched.wait_for("a", 6)
    with path.open("r+b") as file:  # simulate a partial write of the last two episodes
        file.truncate(len(complete) + 9)
    watched.wait_for("a", 4)
    with path.open("r+b") as file:
        file.write(extended)
    watched.wait_for("a", 6)
    rows = watched.index.list("a", Filter())["rows"]
    assert [row["seed"] for row in rows] == [str(t.seed) for t in episodes]
    assert [row["ret"] for row in rows] == [t.total_reward for t in episodes]


def test_a_replaced_file_and_a_deleted_run(runs: Path, watched: Watched) -> None:
    path = store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 5, seed=1))
    store(runs / "b" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    watched.wait_for("a", 5)
    watched.wait_for("b", 2)
    other = played(RandomAgent(), GUESS, 3, seed=2)
    path.unlink()
    store(path, other)
    watched.wait_for("a", 3)
    assert [row["seed"] for row in watched.index.list("a", Filter())["rows"]] == [str(t.seed) for t in other]
    (runs / "b" / "episodes.jsonl").unlink()
    (runs / "b").rmdir()
    until(lambda: watched.index.progress("b")["files"] == 0)
    assert watched.index.list("b", Filter())["rows"] == []


def test_lines_without_an_episode_are_counted(runs: Path, watched: Watched) -> None:
    good = json.dumps(to_json(nasty_episode()))
    (runs / "mixed.jsonl").write_text(
        f'{good}\n\n[1]\nnot json\n{{"env_id": "a:B"}}\n{{"env_id":"a:B","turns":[3]}}\n{good}\n'
    )
    watched.wait_for("mixed.jsonl", 2)
    progress = watched.index.progress("mixed.jsonl")
    assert (progress["unreadable"], progress["errors"]) == (5, [])
    rows = watched.index.list("mixed.jsonl", Filter())["rows"]
    assert [row["at"] for row in rows] == ["mixed.jsonl:0", "mixed.jsonl:6"]
    assert rows[0]["seed"] == str(2**70 + 1)  # exceeds the range of SQLite integers


def test_unpaired_surrogates_and_deep_nesting_do_not_stop_the_index(runs: Path, watched: Watched) -> None:
    lone = to_json(nasty_episode())
    lone["env_id"] = lone["turns"][-1]["info"]["ending"] = "\ud800"
    deep = "[" * 100_000
    (runs / "odd.jsonl").write_text(f'{deep}\n{json.dumps(lone)}\n{{"env_id": "a:B", "turns": {deep}\n')
    (runs / "a").mkdir()
    (runs / "a" / "run.json").write_text(deep)
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 1))
    watched.wait_for("odd.jsonl", 1)
    watched.wait_for("a", 1)
    assert watched.index.progress("odd.jsonl")["unreadable"] == 2
    assert watched.index.list("odd.jsonl", Filter(ending="?"))["rows"][0]["env"] == "?"
    assert RunReader(watched.folder).of(watched.folder.run("a")).card()["kind"] == "episodes"


def test_named_pipes_are_ignored(runs: Path, watched: Watched) -> None:
    """Check that the index does not wait for a pipe's writer, which may never appear."""
    store(runs / "a" / "trajectories" / "y.jsonl", played(RandomAgent(), GUESS, 1))
    for name in ("x.jsonl", "a/trajectories/x.jsonl", "a/metrics.jsonl", "a/run.json", "a/episodes.jsonl"):
        os.mkfifo(runs / name)
    watched.wait_for("a", 1)
    assert [place.name for place in watched.folder.runs()] == ["a"]
    assert [name for name, _ in watched.folder.files(watched.folder.run("a"))] == ["trajectories/y.jsonl"]
    with pytest.raises(OSError, match="not a regular file"):
        next(scan(runs / "x.jsonl"))
    with pytest.raises(NotFound):
        watched.folder.read(runs / "a" / "metrics.jsonl")


def test_links_to_folders_are_listed_once(runs: Path) -> None:
    store(runs / "group" / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 1))
    store(runs / ".kept" / "b" / "episodes.jsonl", played(RandomAgent(), GUESS, 1))
    for i in range(12):
        (runs / f"again-{i}").symlink_to(runs)
        (runs / "group" / f"above-{i}").symlink_to(runs)
    (runs / "best").symlink_to(runs / "group" / "a")
    (runs / "kept").symlink_to(runs / ".kept" / "b")
    folder = Folder(runs)
    assert [place.name for place in folder.runs()] == ["group/a", "kept"]
    assert folder.run("best").path == runs / "best"  # the run can still be opened by its other name


def test_a_second_viewer_uses_the_index_and_takes_over(runs: Path, watched: Watched) -> None:
    path = store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    watched.wait_for("a", 2)
    second = Watched(runs)
    try:
        second.wait_for("a", 2)
        watched.close()
        store(path, played(RandomAgent(), GUESS, 1))
        second.wait_for("a", 3)
    finally:
        second.close()


def test_a_restart_does_not_read_files_again(runs: Path) -> None:
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    first = Watched(runs)
    first.wait_for("a", 2)
    before = first.index.state("a", "episodes.jsonl")
    first.close()
    second = Watched(runs)
    second.wait_for("a", 2)
    assert second.indexer.versions == {}  # no file was read again
    assert second.index.state("a", "episodes.jsonl") == before
    second.close()


def test_a_damaged_index_is_rebuilt(runs: Path) -> None:
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    first = Watched(runs)
    first.wait_for("a", 2)
    first.close()
    for path in first.index.path.parent.glob("*.sqlite*"):
        path.write_bytes(b"not a database " * 99)
    second = Watched(runs)
    second.wait_for("a", 2)
    second.close()


def test_runs_are_not_modified_and_an_unwritable_cache_is_tolerated(runs: Path, tmp_path: Path) -> None:
    training_run(runs / "t", steps=1)
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    blocked = tmp_path / "blocked"
    blocked.write_text("a file in place of the cache folder")
    server = Server(runs, blocked)
    try:
        server.until_read("t", 8)
    finally:
        server.close()
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_filters(runs: Path, watched: Watched) -> None:
    episodes = played(RandomAgent(), GUESS, 40)
    store(runs / "a" / "episodes.jsonl", episodes)
    watched.wait_for("a", 40)

    def seeds(**filters: object) -> list[str]:
        return [row["seed"] for row in watched.index.list("a", Filter(**filters))["rows"]]  # type: ignore[arg-type]

    assert seeds(outcome="solved") == [str(t.seed) for t in episodes if t.success]
    assert seeds(outcome="unsolved", min_turns=2, max_turns=3) == [
        str(t.seed) for t in episodes if not t.success and 2 <= len(t.turns) <= 3
    ]
    assert seeds(seed=str(episodes[7].seed)) == [str(episodes[7].seed)]
    assert seeds(error="any") == []
    by_return = watched.index.list("a", Filter(), sort="-turns")["rows"]
    assert [row["turns"] for row in by_return] == sorted(len(t.turns) for t in episodes)
    total = watched.index.list("a", Filter())["total"]
    assert total["solved"] == sum(bool(t.success) for t in episodes)
    assert total["mean_return"] == pytest.approx(sum(t.total_reward for t in episodes) / 40)


def test_pages_and_neighbors_cover_all_episodes(runs: Path, watched: Watched) -> None:
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 120))
    watched.wait_for("a", 120)
    listed = [row["at"] for page in range(3) for row in watched.index.list("a", Filter(), page=page)["rows"]]
    assert listed == [f"episodes.jsonl:{n}" for n in range(120)]
    visited: list[str] = []
    at: str | None = "episodes.jsonl:0"
    while at is not None:
        visited.append(at)
        file, _, n = at.rpartition(":")
        at = watched.index.neighbors("a", file, int(n), Filter())["after"]
    assert visited == listed

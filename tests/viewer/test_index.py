"""Test the index of complete, growing and replaced files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from palestra.agents import RandomAgent
from palestra.rollout.codec import to_json
from palestra.viewer.folder import Folder
from palestra.viewer.index import Filter, Index
from palestra.viewer.indexer import Indexer
from tests.viewer.made import GUESS, nasty_episode, played, store, training_run
from tests.viewer.server import Server, until


class Watched:
    """Folder with its index and indexing thread, as in the viewer."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        self.index = Index(self.folder.path)
        self.indexer = Indexer(self.folder, self.index)
        self.indexer.start()

    def holds(self, run: str, episodes: int) -> None:
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
    found = Watched(runs)
    yield found
    found.close()


@pytest.mark.parametrize("name", ["episodes.jsonl", "episodes.jsonl.gz"])
def test_a_growing_file_is_followed_and_a_half_line_waits(runs: Path, watched: Watched, name: str) -> None:
    episodes = played(RandomAgent(), GUESS, 6)
    path = store(runs / "a" / name, episodes[:2])
    watched.holds("a", 2)
    store(path, episodes[2:4])
    watched.holds("a", 4)
    whole = path.read_bytes()
    store(path, episodes[4:])
    more = path.read_bytes()
    path.write_bytes(more)  # the same inode
    watched.holds("a", 6)
    with path.open("r+b") as file:  # as if the last two were still being written
        file.truncate(len(whole) + 9)
    watched.holds("a", 4)
    with path.open("r+b") as file:
        file.write(more)
    watched.holds("a", 6)
    rows = watched.index.list("a", Filter())["rows"]
    assert [row["seed"] for row in rows] == [str(t.seed) for t in episodes]
    assert [row["ret"] for row in rows] == [t.total_reward for t in episodes]


def test_a_replaced_file_and_a_deleted_run(runs: Path, watched: Watched) -> None:
    path = store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 5, seed=1))
    store(runs / "b" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    watched.holds("a", 5)
    watched.holds("b", 2)
    other = played(RandomAgent(), GUESS, 3, seed=2)
    path.unlink()
    store(path, other)
    watched.holds("a", 3)
    assert [row["seed"] for row in watched.index.list("a", Filter())["rows"]] == [str(t.seed) for t in other]
    (runs / "b" / "episodes.jsonl").unlink()
    (runs / "b").rmdir()
    until(lambda: watched.index.progress("b")["files"] == 0)
    assert watched.index.list("b", Filter())["rows"] == []


def test_lines_that_hold_no_episode_are_counted(runs: Path, watched: Watched) -> None:
    good = json.dumps(to_json(nasty_episode()))
    (runs / "mixed.jsonl").write_text(
        f'{good}\n\n[1]\nnot json\n{{"env_id": "a:B"}}\n{{"env_id":"a:B","turns":[3]}}\n{good}\n'
    )
    watched.holds("mixed.jsonl", 2)
    progress = watched.index.progress("mixed.jsonl")
    assert (progress["unreadable"], progress["errors"]) == (5, [])
    rows = watched.index.list("mixed.jsonl", Filter())["rows"]
    assert [row["at"] for row in rows] == ["mixed.jsonl:0", "mixed.jsonl:6"]
    assert rows[0]["seed"] == str(2**70 + 1)  # larger than a database integer


def test_a_second_viewer_reads_what_the_first_wrote_and_takes_over(runs: Path, watched: Watched) -> None:
    path = store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    watched.holds("a", 2)
    second = Watched(runs)
    try:
        second.holds("a", 2)
        watched.close()
        store(path, played(RandomAgent(), GUESS, 1))
        second.holds("a", 3)
    finally:
        second.close()


def test_nothing_is_read_twice_after_a_restart(runs: Path) -> None:
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    first = Watched(runs)
    first.holds("a", 2)
    before = first.index.state("a", "episodes.jsonl")
    first.close()
    second = Watched(runs)
    second.holds("a", 2)
    assert second.indexer.versions == {}  # nothing of it was read
    assert second.index.state("a", "episodes.jsonl") == before
    second.close()


def test_a_damaged_index_is_made_again(runs: Path) -> None:
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 2))
    first = Watched(runs)
    first.holds("a", 2)
    first.close()
    for path in first.index.path.parent.glob("*.sqlite*"):
        path.write_bytes(b"this is no database, and never was one " * 99)
    second = Watched(runs)
    second.holds("a", 2)
    second.close()


def test_the_runs_are_not_touched_and_a_cache_that_cannot_be_written_is_no_problem(runs: Path, tmp_path: Path) -> None:
    training_run(runs / "t", steps=1)
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the cache would be")
    server = Server(runs, blocked)
    try:
        server.until_read("t", 8)
    finally:
        server.close()
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_filters(runs: Path, watched: Watched) -> None:
    episodes = played(RandomAgent(), GUESS, 40)
    store(runs / "a" / "episodes.jsonl", episodes)
    watched.holds("a", 40)

    def seeds(**wanted: object) -> list[str]:
        return [row["seed"] for row in watched.index.list("a", Filter(**wanted))["rows"]]  # type: ignore[arg-type]

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


def test_pages_and_neighbours_cover_all_episodes(runs: Path, watched: Watched) -> None:
    store(runs / "a" / "episodes.jsonl", played(RandomAgent(), GUESS, 120))
    watched.holds("a", 120)
    found = [row["at"] for page in range(3) for row in watched.index.list("a", Filter(), page=page)["rows"]]
    assert found == [f"episodes.jsonl:{n}" for n in range(120)]
    walked: list[str] = []
    at: str | None = "episodes.jsonl:0"
    while at is not None:
        walked.append(at)
        file, _, n = at.rpartition(":")
        at = watched.index.neighbours("a", file, int(n), Filter())["after"]
    assert walked == found

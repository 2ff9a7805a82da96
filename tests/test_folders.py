"""Test that no command deletes or overwrites files that it did not write, and that damaged folders are detected."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.cli import main
from palestra.errors import BadValue
from palestra.folders import (
    MANIFEST,
    damage,
    delete_files,
    delete_written,
    locked,
    recover_folder,
    replace_folder,
    write_manifest,
)
from palestra.training.reporting.metrics import read

GAME = "game:GuessTheNumber-v0-easy"
TRAIN = [
    *("train", "--env", GAME, "--model", "default:0.1M", "--steps", "1", "--episodes", "4", "--warm-start", "8"),
    *("--eval-episodes", "2", "--threads", "1", "--quiet"),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def foreign(folder: str = "out") -> dict[Path, str]:
    """Write user files to a folder and return their contents."""
    files = {Path(folder) / "notes.txt": "mine", Path(folder) / "last" / "thesis.tex": "chapter 1"}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files


def intact(files: dict[Path, str]) -> bool:
    return all(path.read_text() == text for path, text in files.items())


COMMANDS: list[list[str]] = [
    [*TRAIN, "--out", "out"],
    [*TRAIN, "--out", "out", "--overwrite"],
    ["eval", GAME, "--agent", "random", "-n", "2", "--out", "out"],
    ["eval", GAME, "--agent", "random", "-n", "2", "--out", "out", "--overwrite"],
    ["init-model", "0.1M", "--out", "out"],
    ["init-model", "0.1M", "--out", "out", "--overwrite"],
    ["search-index", "texts.jsonl", "--out", "out"],
    ["search-index", "texts.jsonl", "--out", "out", "--overwrite"],
    ["rescore", "evaluation", "--out", "out"],
    ["rescore", "evaluation", "--out", "out", "--overwrite"],
    ["world", "--pages", "100", "--out", "out/notes.txt"],
    ["world", "--pages", "100", "--questions", "out/notes.txt", "--each", "1"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_folders_with_other_files_are_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("texts.jsonl").write_text('{"id": "1", "title": "One", "text": "one"}\n')
    if command[0] == "rescore":
        assert main(["eval", GAME, "--agent", "random", "-n", "2", "--out", "evaluation"]) == 0
    files = foreign()
    assert main(command) == 2
    assert re.search("choose another|already exists", capsys.readouterr().err)
    assert intact(files)
    assert sorted(path for path in Path("out").rglob("*") if path.is_file()) == sorted(files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "again"),
    [
        ([*TRAIN, "--out", "out"], ["--overwrite"]),
        (["eval", GAME, "--agent", "random", "-n", "2", "--out", "out"], ["--overwrite"]),
        (["init-model", "0.1M", "--out", "out"], ["--overwrite"]),
        (["search-index", "texts.jsonl", "--out", "out"], ["--overwrite"]),
    ],
    ids=lambda value: value[0],
)
def test_overwrite_preserves_files_that_were_added(command: list[str], again: list[str]) -> None:
    Path("texts.jsonl").write_text('{"id": "1", "title": "One", "text": "one"}\n')
    assert main(command) == 0
    files = foreign()
    assert main([*command, *again]) == 0
    assert intact(files)


def test_world_files_are_replaced_only_on_request() -> None:
    command = ["world", "--pages", "100", "--out", "pages.jsonl"]
    assert main(command) == 0
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write_manifest(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: (f / "a.bin").write_text("ab"), "a.bin was changed or truncated"),
        (lambda f: (f / "a.bin").write_text("abcX"), "a.bin was changed or truncated"),
        (lambda f: (f / "sub/b.txt").unlink(), "sub/b.txt is missing"),
        (lambda f: (f / MANIFEST).unlink(), "manifest.json is missing or damaged"),
        (lambda f: (f / MANIFEST).write_text("{"), "manifest.json is missing or damaged"),
    ],
)
def test_damage_is_described(change: Callable[[Path], Any], problem: str, tmp_path: Path) -> None:
    written(tmp_path / "model", {"a.bin": "abcd", "sub/b.txt": "b"})
    assert damage(tmp_path / "model") is None
    change(tmp_path / "model")
    assert damage(tmp_path / "model") == problem


@given(
    ours=st.sets(st.sampled_from(["a", "b", "sub/a", "sub/deep/c"]), min_size=1),
    theirs=st.sets(st.sampled_from(["x", "sub/x", "sub/deep/y", "other/z"])),
)
def test_only_written_files_are_deleted(
    tmp_path_factory: pytest.TempPathFactory, ours: set[str], theirs: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("folders") / "out"
    written(folder, dict.fromkeys(ours, "ours"))
    for name in theirs:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("theirs")
    delete_written(folder)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == theirs
    assert folder.exists() == bool(theirs)


def test_a_manifest_cannot_name_files_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "out").mkdir()
    delete_files(tmp_path / "out", ["../secret", str(tmp_path / "secret")])
    assert (tmp_path / "secret").exists()


def test_replacing_a_folder_preserves_other_files(tmp_path: Path) -> None:
    folder, new = tmp_path / "best", tmp_path / ".best.part"
    written(folder, {"weights": "old", "old-only": "old"})
    (folder / "notes.txt").write_text("mine")
    (folder / "license").write_text("my license")
    written(new, {"weights": "new", "license": "new"})
    replace_folder(new, folder)
    assert damage(folder) is None
    assert {path.name: path.read_text() for path in folder.iterdir() if path.name != MANIFEST} == {
        "weights": "new",
        "license": "new",
        "license.old": "my license",
        "notes.txt": "mine",
    }
    folder.rename(tmp_path / ".best.old")  # as if the process was killed between the two renames
    recover_folder(folder)
    assert damage(folder) is None


def test_a_folder_is_locked_once(tmp_path: Path) -> None:
    def lock() -> None:
        with locked(tmp_path / "run", activity="training"):
            pass

    with locked(tmp_path / "run", activity="training"), pytest.raises(BadValue, match="another process is training in"):
        lock()
    lock()


def test_a_damaged_line_of_metrics_does_not_hide_later_ones(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"st\n{"step": 2}\n{"step"')
    with pytest.warns(RuntimeWarning, match="line 2 is damaged"):
        assert read(path) == [{"step": 0}, {"step": 2}]
    path.write_text(json.dumps({"step": 0}) + '\n{"step"')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(path) == [{"step": 0}]

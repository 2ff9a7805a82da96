from __future__ import annotations

import csv
import gzip
import json
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

import palestra
from palestra.envs.tasks import hub
from palestra.envs.tasks.files import read_path
from palestra.envs.tasks.rows import clear_cache, open_rows
from palestra.envs.tasks.source import Source
from palestra.errors import BadValue, DataMissing
from tests.envs.tasks.data_files import as_cached, geometry, math_rows, png, write_jsonl, write_parquet

ROWS = math_rows()


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    clear_cache()


def read_rows(place: Path, **chosen: Any) -> list[dict[str, Any]]:
    table = read_path(place, **chosen)
    return [table[i] for i in range(len(table))]


def every_row(source: Source) -> Iterator[dict[str, Any]]:
    rows = open_rows(source)
    yield from (rows[i] for i in range(len(rows)))


def in_csv(path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def in_json(path: Path) -> Path:
    path.write_text(json.dumps(ROWS, indent=1))
    return path


def in_gzip(path: Path) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n\n" for row in ROWS).encode()))
    return path


def in_saved(path: Path) -> Path:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(path))
    return path


def in_shards(path: Path) -> Path:
    write_parquet(path / "data" / "train-00000-of-00002.parquet", ROWS[:5])
    write_parquet(path / "data" / "train-00001-of-00002.parquet", ROWS[5:])
    return path


WRITERS = {
    "rows.jsonl": lambda path: write_jsonl(path, ROWS),
    "rows.json": in_json,
    "lines.json": lambda path: write_jsonl(path, ROWS),
    "rows.csv": in_csv,
    "rows.jsonl.gz": in_gzip,
    "rows.parquet": lambda path: write_parquet(path, ROWS),
    "saved": in_saved,
    "shards": in_shards,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    place = WRITERS[name](tmp_path / name)
    assert read_rows(place) == ROWS
    env = palestra.make("math:File-v0", path=place)
    prompt, info = env.reset(options={"index": 7})
    assert "What is 7 + 7?" in prompt
    assert info["index"] == 7
    assert env.step(r"\boxed{14}").info["success"] is True


def test_splits_by_file_by_folder_and_by_dictionary(tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    write_jsonl(flat / "train.jsonl", ROWS[:4])
    write_jsonl(flat / "dev.jsonl", ROWS[4:6])
    nested = tmp_path / "nested"
    write_parquet(nested / "2wiki" / "0000.parquet", ROWS[:1])
    write_parquet(nested / "2wiki" / "0001.parquet", ROWS[1:3])
    write_parquet(nested / "tq" / "0000.parquet", ROWS[3:5])
    saved = tmp_path / "saved"
    datasets.DatasetDict(
        {"test": datasets.Dataset.from_list(ROWS[:2]), "train": datasets.Dataset.from_list(ROWS[2:])}
    ).save_to_disk(str(saved))
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps({"train": ROWS[:3], "test": ROWS[3:]}))
    assert read_rows(flat) == ROWS[:4]
    assert read_rows(flat, split="validation") == ROWS[4:6]
    assert read_rows(nested, split="2wiki") == ROWS[:3]
    assert read_rows(saved) == ROWS[2:]
    assert read_rows(saved, split="test") == ROWS[:2]
    assert read_rows(whole, split="test") == ROWS[3:]
    with pytest.raises(BadValue, match="several splits; select one with data_split=: 2wiki, tq"):
        read_path(nested)
    with pytest.raises(BadValue, match="has no split 'tset'; its splits are test, train"):
        read_path(saved, split="tset")


def test_configurations_are_folders(tmp_path: Path) -> None:
    write_parquet(tmp_path / "main" / "train-00000-of-00001.parquet", ROWS[:2])
    write_parquet(tmp_path / "socratic" / "train-00000-of-00001.parquet", ROWS[2:4])
    assert read_rows(tmp_path, config="socratic") == ROWS[2:4]
    with pytest.raises(BadValue, match="config=: main, socratic"):
        read_path(tmp_path)
    with pytest.raises(DataMissing, match="no folder for the configuration 'mian'"):
        read_path(tmp_path, config="mian")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"problem": 1}\n{"problem"', "row 1: not JSON"),
        ("b.jsonl", b"[1]\n", "row 0: expected a JSON object"),
        ("c.json", b"nonsense", "is not JSON"),
        ("d.json", b"[1, 2]", "a list of objects"),
        ("e.csv", b"a,b\n1,2\n3\n", "row 1: the number of fields differs"),
        ("f.csv", b"a,b\n\xff\xfe,2\n", "cannot be read as CSV in UTF-8"),
        ("g.parquet", b"PAR1 nothing PAR1", "cannot be read as Parquet"),
        ("h.txt", b"hello", "is not a data file"),
        ("empty.jsonl", b"\n\n", "has no rows"),
    ],
)
def test_errors_in_files_name_the_location(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    with pytest.raises((BadValue, DataMissing), match=message):
        list(every_row(Source(path=str(place))))


def test_missing_data(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="does not exist"):
        palestra.make("math:File-v0", path=str(tmp_path / "none.jsonl"))
    with pytest.raises(DataMissing, match="contains no data files"):
        palestra.make("math:File-v0", path=str(tmp_path))
    with pytest.raises(BadValue, match='pass path="my.jsonl"'):
        palestra.make("math:File-v0")


def test_a_wrong_column_lists_the_columns(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "my.jsonl", [{"q": "1 + 1?", "a": "2"}])
    with pytest.raises(BadValue, match=r"has no column 'problem'; its columns are q, a\. Select one with question="):
        palestra.make("math:File-v0", path=place)
    with pytest.raises(BadValue, match=r"no column 'anwser'.*answer="):
        palestra.make("math:File-v0", path=place, question="q", answer="anwser")
    with pytest.raises(BadValue, match="no column 'pictures'"):
        palestra.make("math:File-v0", path=place, question="q", answer="a", images="pictures")


def test_rows_are_read_once_and_shared(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "my.jsonl", ROWS)
    one: Any = palestra.make("math:File-v0", path=str(place))
    two: Any = palestra.make("math:File-v0", path=str(place), shuffle=False)
    one.reset(seed=0)
    assert one.rows is two.rows
    assert one.fork().rows is one.rows
    assert pickle.loads(pickle.dumps(one)).rows is one.rows
    assert len(one.snapshot()) < 5_000
    write_jsonl(place, [*ROWS, {"problem": "new", "answer": "1"}])
    assert len(palestra.make("math:File-v0", path=str(place)).rows) == len(ROWS) + 1  # type: ignore[attr-defined]


def test_concurrent_threads_share_one_read(tmp_path: Path) -> None:
    place = str(write_jsonl(tmp_path / "my.jsonl", math_rows(3000)))
    tables: list[Any] = []
    threads = [threading.Thread(target=lambda: tables.append(open_rows(Source(path=place)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(rows) for rows in tables}) == 1
    assert len(tables) == 8


# Datasets on the Hub


@pytest.mark.parametrize("setting", ["keyword", "variable"])
def test_a_mirror_replaces_the_hub(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "axon-rl" / "GSM-8k" / "data" / "train-00000-of-00001.parquet", ROWS)
    if setting == "variable":
        monkeypatch.setenv("PALESTRA_MIRROR", str(tmp_path))
        env = palestra.make("math:GSM8K")
    else:
        env = palestra.make("math:GSM8K", mirror=tmp_path)
    _, info = env.reset(options={"index": 3})
    assert info["item"] == "axon-rl/GSM-8k[3]"
    assert env.step(env.expert_action() or "").reward == 1.0


def test_cached_data_sets_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_cached(tmp_path, "axon-rl/GSM-8k", ROWS)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    env = palestra.make("math:GSM8K", shuffle=False)
    assert "What is 4 + 4?" in env.reset(seed=4)[0]


def test_without_a_network_the_error_lists_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataMissing) as caught:
        palestra.make("math:Math12K", mirror=tmp_path)
    message = str(caught.value)
    for part in ("axon-rl/MATH-12k", str(tmp_path / "cache"), "mirror=", "PALESTRA_MIRROR", "math:File-v0", "path="):
        assert part in message
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("how", ["silent", "refused"])
def test_an_unreachable_hub_fails_within_seconds(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify that `datasets` does not retry if a firewall drops packets or if the port is closed."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        if how == "silent":
            door.listen(0)
            port = door.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]  # connections are dropped when the backlog is full
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
        else:
            port, fillers = door.getsockname()[1], []
        monkeypatch.setattr(hub, "CONNECT_TIMEOUT", 0.5)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(DataMissing, match=r"127\.0\.0\.1 is not reachable"):
            palestra.make("math:GSM8K")
        for filler in fillers:
            filler.close()
    assert datasets.config.HF_HUB_OFFLINE is False


def test_a_reachable_hub() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        assert hub.unreachable_reason(f"http://127.0.0.1:{door.getsockname()[1]}", 2.0) is None


@pytest.mark.parametrize("wrong", ["a/b/c", "../etc", "has space/x", "axon-rl/"])
def test_invalid_ids_are_rejected(wrong: str) -> None:
    with pytest.raises(BadValue, match="owner/name"):
        palestra.make("math:File-v0", dataset=wrong)


# Images


def saved(tmp_path: Path) -> Path:
    geometry().save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def parquet(tmp_path: Path) -> Path:
    folder = tmp_path / "axon-rl" / "geometry3k" / "data"
    folder.mkdir(parents=True)
    geometry().to_parquet(str(folder / "train-00000-of-00001.parquet"))
    return folder.parent


def in_files(tmp_path: Path) -> Path:
    (tmp_path / "red.png").write_bytes(png("red"))
    (tmp_path / "blue.png").write_bytes(png("blue"))
    rows: list[dict[str, Any]] = [
        {"problem": "<image>Find x.", "answer": "3", "images": "red.png"},
        {
            "problem": "Find y of the figure <image>, as drawn in <image>.",
            "answer": "\\sqrt{2}",
            "images": ["blue.png", "blue.png"],
        },
    ]
    return write_jsonl(tmp_path / "rows.jsonl", rows)


@pytest.mark.parametrize("write", [saved, parquet, in_files])
def test_images_are_inserted_at_their_placeholders(write: Any, tmp_path: Path) -> None:
    env = palestra.make("math:Geometry3K", path=write(tmp_path), shuffle=False)
    first, _ = env.reset(seed=0)
    assert [part["type"] for part in first] == ["image", "text", "text"]  # type: ignore[index]
    assert first[0] == {"type": "image", "image": png("red")}
    second, _ = env.reset(seed=1)
    assert [part["type"] for part in second] == ["text", "image", "text", "image", "text", "text"]  # type: ignore[index]
    assert env.fork().step(env.expert_action() or "").info["success"]


def test_images_without_a_placeholder_come_first(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png("red"))
    place = write_jsonl(tmp_path / "r.jsonl", [{"problem": "Find x.", "answer": "3", "images": ["a.png"]}])
    env = palestra.make("math:File-v0", path=place, images="images")
    assert [part["type"] for part in env.reset()[0]] == ["image", "text", "text"]  # type: ignore[index]
    gone = write_jsonl(tmp_path / "s.jsonl", [{"problem": "Find x.", "answer": "3", "images": ["b.png"]}])
    with pytest.raises(DataMissing, match=r"image .*b\.png does not exist"):
        palestra.make("math:File-v0", path=gone, images="images").reset()

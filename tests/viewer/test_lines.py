"""Test random access to lines in plain and compressed files."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import ParsingFailed
from palestra.viewer import lines

texts = st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=12)


def written(folder: Path, data: bytes, cuts: list[int], packed: bool) -> tuple[Path, list[int]]:
    """Write `data`, optionally as several gzip members; return the path and the end offset of each member."""
    path = folder / ("a.jsonl.gz" if packed else "a.jsonl")
    if not packed:
        path.write_bytes(data)
        return path, []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [gzip.compress(data[a:b]) for a, b in pairwise(places)] or [gzip.compress(b"")]
    path.write_bytes(b"".join(parts))
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    return path, ends


@given(texts=texts, half=st.binary(max_size=9), cuts=st.lists(st.integers(0, 999), max_size=6), packed=st.booleans())
def test_every_line_is_located_and_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, texts: list[bytes], half: bytes, cuts: list[int], packed: bool
) -> None:
    data = b"".join(text + b"\n" for text in texts) + half.replace(b"\n", b"")
    path, _ = written(tmp_path_factory.mktemp("lines"), data, cuts, packed)
    entries = list(lines.scan(path))
    assert [line.data for line in entries] == texts  # the partial last line is skipped
    assert [lines.read(path, line.spot) for line in entries] == texts
    for i, line in enumerate(entries):
        if line.resume is not None:  # a scan can resume at this offset
            assert [rest.data for rest in lines.scan(path, line.resume)] == texts[i + 1 :]


@pytest.mark.parametrize("packed", [False, True])
def test_results_do_not_depend_on_the_chunk_size(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [bytes([65 + i % 26]) * (i * 7 % 50) for i in range(60)]
    path, _ = written(tmp_path, b"".join(text + b"\n" for text in texts), [100, 101, 500], packed)
    monkeypatch.setattr(lines, "CHUNK", 16)
    entries = list(lines.scan(path))
    assert [line.data for line in entries] == texts
    assert [lines.read(path, line.spot) for line in entries] == texts


@pytest.mark.parametrize("packed", [False, True])
def test_too_long_lines_are_skipped(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = written(tmp_path, b"a\n" + b"b" * 500 + b"\nc\n", [], packed)
    monkeypatch.setattr(lines, "CHUNK", 16)
    monkeypatch.setattr(lines, "LONGEST", 100)
    assert [line.data for line in lines.scan(path)] == [b"a", None, b"c"]


def test_an_incomplete_gzip_member_is_read_again_later(tmp_path: Path) -> None:
    path, ends = written(tmp_path, b"one\ntwo\n", [4], packed=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    first, *rest = lines.scan(path)
    assert (first.data, first.resume) == (b"one", ends[0])
    assert all(line.resume is None for line in rest)  # the incomplete member must be read again
    path.write_bytes(whole)
    assert [line.data for line in lines.scan(path, ends[0])] == [b"two"]


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\n") + b"this is not gzip")
    with pytest.raises(ParsingFailed, match="damaged near byte"):
        list(lines.scan(path))

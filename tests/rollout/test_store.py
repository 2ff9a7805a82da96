"""Test plain and compressed trajectory files: round trips, crashes and concurrent writers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.errors import BadValue, ParsingFailed, StoreFailed
from palestra.rollout import Failure, Trajectory, Turn, Writer, collect, read
from palestra.rollout.codec import from_json, to_json
from palestra.types import Action, Call
from tests.rollout.players import Solver

NAMES = ["t.jsonl", "t.jsonl.gz"]

ids = st.lists(st.integers(0, 2**31), max_size=6)
texts = st.text(max_size=20) | st.just("\ud800 \x00 \u2028\n")
plain = st.dictionaries(st.text(max_size=4), st.none() | st.booleans() | st.integers() | texts, max_size=3)
parts = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts})
    | st.fixed_dictionaries({"type": st.just("image"), "image": st.binary(max_size=8)}),
    max_size=2,
)
observations = texts | parts
calls = st.builds(
    Call,
    prompt_ids=ids,
    ids=ids,
    logprobs=st.lists(st.floats(-20, 0), max_size=4),
    finish=st.sampled_from(["stop", "length"]),
    version=st.integers(0, 9),
    kind=st.sampled_from(["act", "reflect"]),
    split=st.none() | st.just("template"),
    prompt=st.none() | st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": observations}), max_size=2),
)
actions = st.builds(
    Action, text=texts, calls=st.lists(calls, max_size=2).map(tuple), tool_calls=st.just(({"name": "f"},))
)
turns = st.builds(
    Turn,
    observation=observations,
    action=actions,
    reward=st.floats(-1, 1),
    terminated=st.booleans(),
    truncated=st.booleans(),
    info=plain,
    agent_seconds=st.floats(0, 9),
    env_seconds=st.floats(0, 9),
)
trajectories = st.builds(
    Trajectory,
    env_id=texts,
    kwargs=plain,
    seed=st.integers(0, 2**48),
    group=st.integers(0, 99),
    member=st.integers(0, 9),
    turns=st.lists(turns, max_size=3).map(tuple),
    final_observation=observations,
    final_prompt=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    success=st.none() | st.booleans(),
    failure=st.none() | st.builds(Failure, boundary=texts, kind=texts, message=texts, trace=texts),
    attempts=st.integers(1, 3),
    started=st.floats(0, 2e9),
    seconds=st.floats(0, 9),
    meta=plain,
)


@given(trajectories)
def test_json_round_trip(trajectory: Trajectory) -> None:
    assert from_json(json.loads(json.dumps(to_json(trajectory)))) == trajectory


@pytest.mark.parametrize("name", NAMES)
@given(stored=st.lists(trajectories, max_size=4))
@settings(max_examples=30)
def test_file_round_trip(name: str, stored: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("store") / "deep" / name
    for half in (stored[:2], stored[2:]):  # the second half is appended by another writer
        with Writer(path) as writer:
            for trajectory in half:
                writer.write(trajectory)
    assert list(read(path)) == stored


def some(count: int) -> list[Trajectory]:
    return asyncio.run(collect(Solver(), "game:GuessTheNumber-v0-hard", episodes=count, seed=1)).trajectories


def test_extended_prompts_are_stored_once() -> None:
    longest = max(some(20), key=lambda t: len(t.turns))
    data: Any = to_json(longest)
    tokens = sum(len(call["prompt_ids"]) + len(call["ids"]) for turn in data["turns"] for call in turn["calls"])
    last = longest.turns[-1].action.calls[-1]
    assert tokens == len(last.prompt_ids) + len(last.ids)
    assert from_json(data) == longest


@pytest.mark.parametrize("name", NAMES)
def test_file_truncated_anywhere_can_be_read_and_appended_to(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    whole = some(3)
    ends = []
    with Writer(path) as writer:
        for trajectory in whole:
            writer.write(trajectory)
            ends.append(path.stat().st_size)
    data = path.read_bytes()
    for cut in [*range(0, len(data), 97), *ends, *(end - 1 for end in ends), len(data)]:
        path.write_bytes(data[:cut])
        full = sum(end <= cut for end in ends)
        assert list(read(path)) == whole[:full], f"truncated at byte {cut}"
        with Writer(path) as writer:
            writer.write(whole[0])
        assert list(read(path)) == [*whole[:full], whole[0]]


@pytest.mark.parametrize("name", NAMES)
def test_killed_writer_loses_no_written_episode(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    code = f"""
        import sys
        from palestra.rollout import Writer
        from tests.rollout.test_store import some
        whole = some(3)
        with Writer({str(path)!r}) as writer:
            for n in range(100_000):
                writer.write(whole[n % 3])
                print(n, flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = -1
    for line in process.stdout:
        last = int(line)
        if last >= 200:
            break
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    process.stdout.close()
    last = int(rest[-1]) if rest else last
    assert len(list(read(path))) >= last + 1


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Writer(tmp_path / "t.jsonl"), pytest.raises(BadValue, match="open in another writer"):
        Writer(tmp_path / "t.jsonl")
    writer = Writer(tmp_path / "t.jsonl")
    writer.close()
    writer.close()
    with pytest.raises(BadValue, match="is closed"):
        writer.write(some(1)[0])


def test_full_disk_raises_and_leaves_complete_lines(tmp_path: Path) -> None:
    code = f"""
        import resource
        from palestra.errors import StoreFailed
        from palestra.rollout import Writer
        from tests.rollout.test_store import some
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        whole, count = some(3), 0
        with Writer({str(tmp_path / "t.jsonl")!r}) as writer:
            try:
                while True:
                    writer.write(whole[0])
                    count += 1
            except StoreFailed as err:
                assert "cannot write to" in str(err)
        print(count)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(read(tmp_path / "t.jsonl"))) == int(done.stdout) > 0
    assert issubclass(StoreFailed, Exception)


def test_invalid_files_raise(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(BadValue, match="does not exist"):
        list(read(path))
    for line, message in (
        ("{", "line 1"),
        ("[]", "not a trajectory"),
        ('{"schema": 7}', "schema 7; this version reads schema 1"),
        ('{"schema": 1}', "KeyError"),
    ):
        path.write_text(line + "\n")
        with pytest.raises(ParsingFailed, match=message):
            list(read(path))
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(os.urandom(100))
    with pytest.raises(ParsingFailed, match="damaged"):
        list(read(path))


def test_failures_are_stored(tmp_path: Path) -> None:
    failed = replace(some(1)[0], success=None, failure=Failure(boundary="engine", kind="X", message="gone"))
    with Writer(tmp_path / "t.jsonl") as writer:
        writer.write(failed)
    assert list(read(tmp_path / "t.jsonl")) == [failed]

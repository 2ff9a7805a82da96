"""Test the code shared by all workers: frames, activity table, executor, replay log and worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.core import Env
from palestra.errors import BadValue
from palestra.machine import own_cores
from palestra.workers.env_runner import EnvRunner, PlayerRngProxy, episode_seed, factory_name
from palestra.workers.executor import Executor, ExecutorThread
from palestra.workers.replay_log import ReplayLog
from palestra.workers.types import CALL, REPLACE, RESET, RESTORE, STEP, Command
from palestra.workers.wire import ActivityTable, FrameDecoder, dump_factories, encode_frame
from palestra.workers.worker_process import WorkerProcess, end_workers
from palestra.workers.worker_setup import connect_to_parent
from tests.vector.envs import Trouble


@given(messages=st.lists(st.binary(max_size=50) | st.integers()), sizes=st.lists(st.integers(1, 20)))
def test_frames_survive_any_fragmentation(messages: list[Any], sizes: list[int]) -> None:
    data = b"".join(map(encode_frame, messages))
    decoder = FrameDecoder()
    decoded: list[Any] = []
    for size in sizes:
        decoder.feed(data[:size])
        data = data[size:]
        decoded += decoder.messages()
    decoder.feed(data)
    assert decoded + decoder.messages() == messages


def test_activity_is_shared_through_its_file() -> None:
    parent = ActivityTable(2)
    worker = ActivityTable(2, os.dup(parent.fd))
    worker.start(0, 7, 12.5)
    worker.start(1, 3, float("inf"))
    assert parent.running() == {7: 12.5, 3: float("inf")}
    worker.end(0)
    worker.blame(3)
    assert parent.running() == {3: float("inf")}
    assert parent.blamed == 3
    worker._numbers.release()
    worker._map.close()
    parent.close()


def test_executor_overtakes_slow_commands_and_runs_each_once() -> None:
    finished: list[int] = []
    release = threading.Event()

    def run(command: Command, _: ExecutorThread) -> None:
        if command[0] == 0:
            release.wait(300)
        finished.append(command[0])

    executor = Executor(run, lambda: None, max_threads=4, name="test")
    executor.submit([(index, STEP, "") for index in range(20)])
    end = time.monotonic() + 120
    while len(finished) < 19 and time.monotonic() < end:
        time.sleep(0.005)
    assert sorted(finished) == list(range(1, 20))
    release.set()
    while len(finished) < 20 and time.monotonic() < end:
        time.sleep(0.005)
    executor.close()
    assert sorted(finished) == list(range(20))


@given(
    actions=st.lists(st.sampled_from(["a", "b", "end"]), max_size=12),
    autoreset=st.sampled_from(["same_step", "next_step"]),
)
def test_a_replayed_env_continues_like_the_original(actions: list[str], autoreset: Any) -> None:
    original = EnvRunner(0, Trouble, 5, autoreset)
    log = ReplayLog(0, "Trouble", 5, autoreset)
    for command in [(0, RESET, (None, None)), *((0, STEP, action) for action in actions)]:
        log.record(command, original.run(*command[1:]))
    log.stale = True
    index, kind, payload = log.prepare((0, STEP, "next"))
    assert (index, kind) == (0, RESTORE)
    replacement = EnvRunner(0, Trouble, 0, autoreset)
    assert replacement.run(kind, payload)[:5] == original.run(STEP, "next")[:5]


def test_a_blamed_command_becomes_a_report() -> None:
    log = ReplayLog(2, "Trouble", 5, "same_step")
    log.record((2, RESET, (None, None)), EnvRunner(2, Trouble, 5, "same_step").run(RESET, (None, None)))
    assert log.blame((2, STEP, "kill"), "died", "signal") is None
    assert log.command is not None
    _, kind, (root, episode, failure) = log.command
    assert (kind, root, episode, failure.cause, failure.action) == (REPLACE, 5, 0, "died", "kill")
    assert failure.seed == episode_seed(5, 0)
    reply = log.blame((2, CALL, ("render", (), {})), "died", "signal")
    assert reply is not None
    assert reply[5]["failure"].cause == "died"


def test_names_and_pickles_of_factories() -> None:
    assert factory_name(Trouble) == "Trouble"
    assert dump_factories([Trouble])
    lock = threading.Lock()

    def broken() -> Env:
        return Trouble(turns=lock)  # type: ignore[arg-type]

    with pytest.raises(BadValue, match="cannot be sent to another process"):
        dump_factories([broken])


def test_seeding_the_player_proxy_forwards_the_seed() -> None:
    seeds: list[Any] = []
    PlayerRngProxy(seeds.append).seed(9)
    assert seeds[-1] == 9


def echo(sock_fd: int, life_fd: int, activity_fd: int) -> None:
    """Run a worker that sends every message back, or the number of its cores, and exits when it receives "exit"."""
    sock, decoder, messages = connect_to_parent(sock_fd, life_fd, activity_fd)
    while True:
        for message in messages:
            if message == "exit":
                os._exit(5)
            sock.sendall(encode_frame(own_cores() if message == "cores" else message))
        data = sock.recv(1 << 16)
        if not data:
            return
        decoder.feed(data)
        messages = decoder.messages()


def read_until(worker: WorkerProcess, count: int) -> list[Any]:
    messages: list[Any] = []
    end = time.monotonic() + 60
    while len(messages) < count and worker.alive and time.monotonic() < end:
        worker.flush()
        messages += worker.read()
        time.sleep(0.005)
    return messages


def test_worker_process_exchanges_messages_and_reports_its_exit() -> None:
    worker = WorkerProcess(echo, "config", lanes=1)
    large = "x" * 3_000_000  # larger than the socket buffer
    worker.send(large)
    worker.send("cores")
    assert read_until(worker, 3) == ["config", large, 1]  # a worker does not use the cores of the others
    worker.send("exit")
    read_until(worker, 1)
    assert not worker.alive
    assert worker.kill_and_read() == []
    assert worker.exit_status == "exit status 5"
    worker.release()
    other = WorkerProcess(echo, "config", lanes=1)
    end_workers([other], grace=120.0)
    assert other.process.returncode == 0


def test_workers_do_not_import_an_event_loop() -> None:
    """Check that starting a worker, of which there may be many, does not import modules that only its parent uses."""
    code = (
        "import sys, palestra.workers.worker, palestra.server.worker; "
        "assert not {'asyncio', 'ssl', 'tempfile'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

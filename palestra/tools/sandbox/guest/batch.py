"""Run one program with several inputs, each in its own confined process, under one supervisor process.

The supervisor is forked from the template and keeps its privileges. It never runs or parses the program: the code and
the inputs are bytes that it passes on, and the outputs are bytes that it copies to the result file. Each process has
its own namespaces, user and empty directory, so it cannot access the supervisor or leave anything to the next process.

The first process compiles the program and writes the bytecode to a file, which it closes before it runs the program.
The other processes of the batch load the bytecode.

A batch may contain a second program, the peer. For each input, it runs at the same time as the program and is confined
in the same way. The two processes are connected only by a socket and cannot access each other otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
from time import monotonic
from typing import Any

from palestra.tools.sandbox.guest.confinement import Confinement, ConfinementSlot, Steps
from palestra.tools.sandbox.guest.ending import OutOfMemoryCounter, describe_ending
from palestra.tools.sandbox.guest.job import CHANNEL, close_all_but, reset_interpreter
from palestra.tools.sandbox.guest.paths import HOME
from palestra.tools.sandbox.guest.program import ProgramRunner
from palestra.tools.sandbox.guest.usage import UsageMeter, all_usage, resident_memory

CHECK_INTERVAL = 0.05  # seconds between checks of a program's resource usage
LINK = 4  # descriptor of the socket between a program and its peer
BATCH_HEADER = struct.Struct("<I")  # length of the JSON description, which is followed by the code and the inputs
# Exit code and signal (-1: none), whether it was killed from outside, limit, CPU seconds, seconds, lengths of outputs.
ENTRY = struct.Struct("<hh?16sddQQ")
_STOPPED = "stopped"  # recorded instead of a limit for a peer that is no longer needed


class BatchSupervisor:
    """Runs the processes of one batch, one after the other."""

    def __init__(
        self, confinement: Confinement, slot: ConfinementSlot, steps: Steps, limits: dict[str, Any], folder: str
    ) -> None:
        """Prepare to run programs with `steps`; at level "none", their directories are created in `folder`."""
        confinement.supervise()
        self._confinement = confinement
        self._slot = slot
        self._steps = steps
        self._limits = limits
        self._folder = folder
        self._folders = 0  # number of directories created so far
        self._inherited = resident_memory()
        self._counter = OutOfMemoryCounter()
        self._bytecode = b""  # the program's bytecode, once a process has compiled it
        # A high number, because a child moves its own files to the lowest numbers.
        with open(os.memfd_create("palestra-bytecode"), "rb") as file:  # noqa: PTH123
            self._bytecode_file = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 200)
        self._error_reader, self._error_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self, job: int, results: int) -> None:
        """Run the program with each input in the file `job`, and append an ENTRY with its outputs to `results`."""
        data = memoryview(os.pread(job, os.fstat(job).st_size, 0))
        at = BATCH_HEADER.size + BATCH_HEADER.unpack_from(data)[0]
        description = json.loads(bytes(data[BATCH_HEADER.size : at]))
        parts = []
        for length in description["lengths"]:
            parts.append(bytes(data[at : at + length]))
            at += length
        code, peer, *inputs = parts
        for stdin in inputs:
            outcome = self._run_one(code, peer, stdin, results)
            if description["stop"] and (outcome["exit"] != 0 or outcome["limit"]):
                return

    def _run_one(self, code: bytes, peer: bytes, stdin: bytes, results: int) -> dict[str, Any]:
        self._counter.refresh()
        started = monotonic()
        link, peer_link = socket.socketpair() if peer else (None, None)
        process = _Process(stdin, link)
        beside = _Process(b"", peer_link) if peer else None
        processes = [process] if beside is None else [process, beside]
        try:
            if beside is not None:
                self._start(beside, peer, link)
            self._start(process, code, peer_link)
            for one in processes:
                one.close_link()
            self._watch(process, processes, started)
            outcome = self._end(process)
            if beside is not None:
                ending = self._end(beside)
                outcome["killed"] = outcome["killed"] or ending["killed"]
                if outcome["exit"] != 0 and not outcome["limit"] and ending["limit"] != _STOPPED:
                    outcome["limit"] = ending["limit"]  # the program failed because its peer was killed
            if self._confinement.level == "none":
                remove_leftovers([])
                for one in processes:
                    remove_folder(one.folder)
            self._raise_setup_error()
            note = os.pread(process.note, 16, 0).decode("ascii", "replace")
            outcome["limit"] = outcome["limit"] or (note if outcome["exit"] else "")
            if beside is None and not self._bytecode:
                self._bytecode = self._read_bytecode()
            size = int(self._limits["output"]) + 1  # one byte more than allowed, so that the host detects the excess
            out, err = os.pread(process.out, size, 0), os.pread(process.err, size, 0)
        finally:
            for one in processes:
                one.close()
        entry = ENTRY.pack(
            -1 if outcome["exit"] is None else outcome["exit"],
            -1 if outcome["signal"] is None else outcome["signal"],
            outcome["killed"],
            outcome["limit"].encode("ascii", "replace"),
            outcome["cpu"],
            monotonic() - started,
            len(out),
            len(err),
        )
        _write(results, entry + out + err)
        return outcome

    def _start(self, process: _Process, code: bytes, other_link: socket.socket | None) -> None:
        steps = self._steps
        if self._confinement.level == "none":
            self._folders += 1
            process.folder = f"{self._folder}/{self._folders}"
            os.mkdir(process.folder, 0o700)  # noqa: PTH102
            steps = self._confinement.plan(self._slot, self._limits, process.folder)
        self._confinement.before_fork()
        process.pid = os.fork()
        if process.pid == 0:
            if other_link is not None:
                other_link.close()
            self._run_child(process, code, steps)
        process.meter = UsageMeter(process.pid, self._inherited)

    def _watch(self, process: _Process, processes: list[_Process], started: float) -> None:
        """Wait until the first process exits, and kill a process that exceeds a limit."""
        limits = self._limits
        deadline = started + limits["wall"]
        handle = os.pidfd_open(process.pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not poll.poll(1000 * max(0.0, min(CHECK_INTERVAL, deadline - monotonic()))):
            now = monotonic()
            if now >= deadline:
                process.kill("time")
                break
            usage = all_usage()
            for one in processes:
                if one.meter is not None:
                    one.meter.update(usage, now, limits["memory"])
                    if one.meter.memory > limits["memory"]:
                        one.kill("memory")
                    elif one.meter.cpu > limits["cpu"]:
                        one.kill("cpu")
        os.close(handle)

    def _end(self, process: _Process) -> dict[str, Any]:
        """Return the outcome of a process; a peer that is still running is killed."""
        pid, status, usage = os.wait4(process.pid, 0 if process.limit else os.WNOHANG)
        if not pid:
            process.kill(_STOPPED)
            pid, status, usage = os.wait4(process.pid, 0)
        return describe_ending(
            status,
            usage,
            limit=process.limit,
            limits=self._limits,
            inherited=self._inherited,
            kills_are_external=self._confinement.kills_are_external,
            counter=self._counter,
            group=self._slot.group,
        )

    def _run_child(self, process: _Process, code: bytes, steps: Steps) -> None:
        """Confine the forked process and run the program. Does not return."""
        exit_code = 1
        try:
            try:
                self._confinement.enter(steps)
                handles = [process.stdin, process.out, process.err, process.note]
                if process.link is not None:
                    handles.append(process.link.fileno())
                # Use numbers above all targets, so that no target overwrites a descriptor that is still needed.
                handles = [fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, LINK + 1) for handle in handles]
                for target, handle in enumerate(handles):
                    os.dup2(handle, target, inheritable=target < CHANNEL)
                saves = process.link is None and not self._bytecode
                kept = [self._error_writer, self._bytecode_file] if saves else [self._error_writer]
                close_all_but(*range(CHANNEL, len(handles)), *kept)
                self._confinement.seal()
                reset_interpreter(None, process.folder or HOME)
            except BaseException as err:  # noqa: BLE001  # not a failure of the program, so it is reported separately
                os.write(self._error_writer, f"{type(err).__name__}: {err}"[:500].encode())
                os._exit(1)
            os.close(self._error_writer)
            program = ProgramRunner(echo=False, brief=False)
            bytecode = self._bytecode if process.link is None else b""
            exit_code, limit = program.run(code, bytecode=bytecode, save=self._save_bytecode if saves else None)
            exit_code = program.finish(exit_code)
            if limit:
                os.pwrite(CHANNEL, limit.encode(), 0)
        finally:
            os._exit(exit_code)

    def _save_bytecode(self, bytecode: bytes) -> None:
        """Write the file and close it. Called in the child before the program runs.

        The length is written last, so an incomplete file is ignored: the process may be killed, or reach the limit on
        file sizes.
        """
        with contextlib.suppress(OSError):
            os.lseek(self._bytecode_file, BATCH_HEADER.size, os.SEEK_SET)
            _write(self._bytecode_file, bytecode)
            os.pwrite(self._bytecode_file, BATCH_HEADER.pack(len(bytecode)), 0)
        os.close(self._bytecode_file)

    def _read_bytecode(self) -> bytes:
        """Return the bytecode, or b"" if no process has compiled the program yet."""
        length = os.pread(self._bytecode_file, BATCH_HEADER.size, 0)
        return os.pread(self._bytecode_file, BATCH_HEADER.unpack(length)[0], BATCH_HEADER.size) if length else b""

    def _raise_setup_error(self) -> None:
        with contextlib.suppress(BlockingIOError):
            raise OSError(os.read(self._error_reader, 1000).decode("utf-8", "replace"))


class _Process:
    """Files of one program, and its process once it is started.

    The files are not reused for another program, because they would keep flags and permissions that a program has set.
    """

    def __init__(self, stdin: bytes, link: socket.socket | None) -> None:
        self.link = link
        self._handles = [os.memfd_create(f"palestra-{name}", os.MFD_CLOEXEC) for name in ("in", "out", "err", "note")]
        self.stdin, self.out, self.err, self.note = self._handles
        _write(self.stdin, stdin)
        os.lseek(self.stdin, 0, os.SEEK_SET)
        self.pid = 0
        self.folder = ""
        self.limit = ""  # the limit for which the process was killed, if any
        self.meter: UsageMeter | None = None

    def kill(self, limit: str) -> None:
        self.limit = self.limit or limit
        os.kill(self.pid, signal.SIGKILL)  # its exit status has not been read, so the id is still valid

    def close_link(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None

    def close(self) -> None:
        self.close_link()
        for handle in self._handles:
            os.close(handle)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def remove_leftovers(running: list[int]) -> None:
    """Kill all children of this process except `running`; not needed with namespaces."""
    for pid, process in all_usage().items():
        if process.parent == os.getpid() and pid not in running:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


def new_folder() -> str:
    """Create a directory for one program; not needed with namespaces."""
    import tempfile  # imported only here: it imports `random`, which every fork would have to reseed

    return tempfile.mkdtemp(prefix="palestra-")


def remove_folder(folder: str) -> None:
    """Remove a program's directory, including directories that the program made inaccessible."""
    import shutil

    for parent, names, _ in os.walk(folder):
        for path in (parent, *(os.path.join(parent, name) for name in names)):  # noqa: PTH118
            if not os.path.islink(path):  # noqa: PTH114
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)

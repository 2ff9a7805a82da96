"""Template process: a pre-started interpreter that forks a process for every program, monitors it and reports its exit.

A request is one message on the control socket with these file descriptors: the connection for reporting the outcome,
the request file with the code and its input files, and the program's standard output, error and input. The template
never reads the request file, so that its forks contain no data from earlier programs. A few forks are created and
confined in advance; they wait for the next requests with the same limits. Closing the connection kills the program. A
batch runs one program with several inputs, under a supervisor that is forked from the template (`batch.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from time import monotonic
from typing import Any

from palestra.tools.sandbox.guest.batch import (
    CHECK_INTERVAL,
    BatchSupervisor,
    new_folder,
    remove_folder,
    remove_leftovers,
)
from palestra.tools.sandbox.guest.confinement import Confinement, ConfinementSlot, Steps
from palestra.tools.sandbox.guest.ending import OutOfMemoryCounter, describe_ending
from palestra.tools.sandbox.guest.job import CHANNEL, Job, close_all_but, reset_interpreter, run_session
from palestra.tools.sandbox.guest.paths import HOME
from palestra.tools.sandbox.guest.program import ProgramRunner
from palestra.tools.sandbox.guest.usage import UsageMeter, all_usage, resident_memory

MIN_WAITING, MAX_WAITING = 1, 5  # numbers of waiting processes; at the minimum, more are forked up to the maximum


class ProgramProcess:
    """A confined fork of the template that waits for a program and then runs it."""

    def __init__(
        self, pid: int, slot: ConfinementSlot, gate: socket.socket, limits: dict[str, Any], folder: str
    ) -> None:
        self.pid = pid
        self.handle = os.pidfd_open(pid)
        self.slot = slot
        self.gate: socket.socket | None = gate  # socket that sends the request to the process
        self.limits = limits
        self.folder = folder
        self.connection: socket.socket | None = None  # connection to the host, or None before a program is received
        self.started = 0.0
        self.deadline: float | None = None
        self.limit = ""  # the limit for which the process was killed, if any
        self.stopped = False  # the process was killed at the host's request
        self.meter: UsageMeter | None = None

    def run(self, message: bytes, handles: list[int], connection: socket.socket) -> None:
        """Send a program to the process; its outcome will be reported on `connection`."""
        self.connection = connection
        connection.setblocking(False)
        self.started = monotonic()
        if self.limits["kind"] == "run":
            self.deadline = self.started + self.limits["wall"]
        if self.gate is not None:
            with contextlib.suppress(OSError):  # if the process has exited, `_finish` handles this
                socket.send_fds(self.gate, [message], handles)
            self.gate.close()
            self.gate = None

    def kill(self, limit: str = "") -> None:
        self.limit = self.limit or limit
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


class Template:
    """Main loop of the template process."""

    def __init__(self, control: socket.socket, confinement: Confinement) -> None:
        self._control = control
        self._confinement = confinement
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._processes: dict[int, ProgramProcess] = {}  # waiting and running processes, by pidfd
        self._connected: dict[int, ProgramProcess] = {}  # running processes, by connection
        self._waiting: list[tuple[bytes, ProgramProcess]] = []  # (serialized limits, process), newest last
        self._prepare_for = b""  # limits for which to fork processes in advance
        self._limits: dict[bytes, dict[str, Any]] = {}
        self._slots: list[ConfinementSlot] = []  # slots that can be reused
        self._slot_count = 0
        self._setup_errors: dict[int, str] = {}  # by slot index
        self._error_reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._error_writer = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, 200)  # a high number, which programs do not use
        os.close(writer)
        self._next_check = 0.0
        self._own_memory = resident_memory()
        self._counter = OutOfMemoryCounter()

    def serve(self) -> None:
        """Serve requests until the control socket closes, then kill all programs and exit."""
        while True:
            for handle, event in self._poll.poll(self._poll_timeout()):
                if handle == self._control.fileno():
                    if not self._accept():
                        return self._end()
                elif handle in self._processes:
                    self._finish(self._processes[handle])
                elif handle in self._connected:
                    self._handle_message(self._connected[handle], event)
            if self._connected and monotonic() >= self._next_check:
                self._check_limits()
            if self._prepare_for:
                self._prepare()

    def _poll_timeout(self) -> float | None:
        """Return the milliseconds until the next limit check, which is later if only sessions are running."""
        if not self._connected:
            return None
        only_sessions = all(process.deadline is None for process in self._connected.values())
        return 1000 * CHECK_INTERVAL * (10 if only_sessions else 1)

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in list(self._processes.values()):
            self._finish(process)

    def _accept(self) -> bool:
        """Receive one request; return False if the control socket was closed."""
        message, handles, _, _ = socket.recv_fds(self._control, 8192, 8)
        if not message:
            return False
        connection = socket.socket(fileno=handles.pop(0))
        kind, _, limits = message.partition(b" ")
        try:
            process = self._acquire(limits)
            self._counter.refresh()
            process.run(kind, handles, connection)
            if not self._connected:
                self._next_check = process.started + CHECK_INTERVAL
            self._connected[connection.fileno()] = process
            self._poll.register(connection, select.POLLIN)
            self._prepare_for = limits
        except OSError as err:
            self._reply(connection, {"broken": f"{type(err).__name__}: {err}"})
        finally:
            for handle in handles:
                os.close(handle)
        return True

    def _acquire(self, limits: bytes) -> ProgramProcess:
        """Return a waiting process with these limits, or a new one."""
        for index in range(len(self._waiting) - 1, -1, -1):
            if self._waiting[index][0] == limits:
                return self._waiting.pop(index)[1]
        return self._fork(limits)

    def _prepare(self) -> None:
        """Fork processes for future requests, with the limits from the most recent request.

        Several are forked in a row, because every page that the template writes to after a fork is copied, and
        consecutive forks share this cost.
        """
        limits, self._prepare_for = self._prepare_for, b""
        count = 0
        for waiting_limits, _ in self._waiting:
            count += waiting_limits == limits
        if count > MIN_WAITING:
            return
        try:
            for _ in range(MAX_WAITING - count):
                self._waiting.append((limits, self._fork(limits)))
        except OSError:
            return  # the next request will hit the same error and report it
        while len(self._waiting) > 2 * MAX_WAITING:
            self._waiting.pop(0)[1].kill()

    def _fork(self, wire: bytes) -> ProgramProcess:
        limits = self._limits.get(wire)
        if limits is None:
            if len(self._limits) >= 64:
                self._limits.clear()
            limits = self._limits[wire] = json.loads(wire)
        slot = self._slots.pop() if self._slots else self._new_slot()
        is_batch = limits["kind"] == "batch"
        folder = new_folder() if self._confinement.level == "none" else ""
        plans = slot.plans.get(wire)
        if plans is None or folder:
            program_plan = self._confinement.plan(slot, limits, folder)
            plans = (self._confinement.supervisor_plan(slot) if is_batch else []), program_plan
            slot.plans.clear()
            slot.plans[wire] = plans
        if slot.group is not None:
            slot.group.set_limit(limits)
        gate, remote_gate = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._confinement.before_fork()
        pid = os.fork()
        if pid == 0:
            if is_batch:
                self._run_supervisor(slot, plans, limits, remote_gate, folder)
            self._run_child(slot, plans[1], remote_gate, folder)
        remote_gate.close()
        process = ProgramProcess(pid, slot, gate, limits, folder)
        self._processes[process.handle] = process
        self._poll.register(process.handle, select.POLLIN)
        return process

    def _new_slot(self) -> ConfinementSlot:
        self._slot_count += 1
        return self._confinement.new_slot(self._slot_count)

    def _run_child(self, slot: ConfinementSlot, steps: Steps, gate: socket.socket, folder: str) -> None:
        """Confine the forked process, wait for a program, and run it. Called in the fork; does not return."""
        code = 1
        try:
            try:
                self._confinement.enter(steps)
                close_all_but(gate.fileno(), self._error_writer)
                self._confinement.seal()
                # Run a trivial program, so that the pages it writes to are copied before the request arrives.
                ProgramRunner(echo=True, brief=True).run(b"print(end='')")
                kind, handles, _, _ = socket.recv_fds(gate, 16, 8)
                if not kind:
                    os._exit(0)  # the template closed the socket because this process is not needed
                job = Job(handles[0])
                session = kind.startswith(b"session")
                stdin = handles[3] if kind.endswith(b"+") else os.open(os.devnull, os.O_RDONLY)
                for target, handle in enumerate((stdin, handles[1], handles[2])):
                    os.dup2(handle, target)
                channel = handles[-1] if session else handles[0]
                if channel == CHANNEL:
                    os.set_inheritable(channel, False)
                else:
                    os.dup2(channel, CHANNEL, inheritable=False)
                close_all_but(CHANNEL, self._error_writer)
                reset_interpreter(job.seed, folder or HOME)
            except BaseException as err:  # noqa: BLE001  # not a failure of the program, so it is reported separately
                os.write(self._error_writer, f"{slot.index} {type(err).__name__}: {err}"[:500].encode() + b"\0")
                os._exit(1)
            os.close(self._error_writer)
            if session:
                code = run_session(job)
            else:
                program = ProgramRunner(echo=job.echo, brief=job.brief)
                code, limit = program.run(job.code)
                code = program.finish(code)
                if limit:
                    os.pwrite(CHANNEL, limit.encode(), 0)
        finally:
            os._exit(code)

    def _run_supervisor(
        self,
        slot: ConfinementSlot,
        plans: tuple[Steps, Steps],
        limits: dict[str, Any],
        gate: socket.socket,
        folder: str,
    ) -> None:
        """Wait for a batch of inputs and run the program with each of them. Called in the fork; does not return."""
        try:
            self._confinement.enter(plans[0])
            group = () if slot.group is None else slot.group.handles
            close_all_but(gate.fileno(), self._error_writer, *group)
            supervisor = BatchSupervisor(self._confinement, slot, plans[1], limits, folder)
            kind, handles, _, _ = socket.recv_fds(gate, 16, 8)
            if kind:
                gate.close()
                supervisor.run(handles[0], handles[1])
            os._exit(0)
        except BaseException as err:  # noqa: BLE001  # the supervisor runs no untrusted code
            os.write(self._error_writer, f"{slot.index} {type(err).__name__}: {err}"[:500].encode() + b"\0")
        finally:
            os._exit(1)

    def _handle_message(self, process: ProgramProcess, event: int) -> None:
        """Handle a message from the host about a running program, or the loss of its connection."""
        if process.connection is None:
            return
        try:
            message = process.connection.recv(16) if event & select.POLLIN else b""
        except OSError:
            message = b""
        if message == b"interrupt":
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        else:
            self._poll.unregister(process.connection)  # poll would report the closed connection repeatedly
            process.stopped = True
            process.kill()

    def _finish(self, process: ProgramProcess) -> None:
        _, status, usage = os.wait4(process.pid, 0)
        self._poll.unregister(process.handle)
        del self._processes[process.handle]
        os.close(process.handle)
        if self._confinement.level == "none":
            self._clean_up(process)
        self._slots.append(process.slot)
        setup_error = self._setup_error(process.slot) if status else ""
        if process.connection is None:  # no program was sent to the process
            self._waiting = [(limits, other) for limits, other in self._waiting if other is not process]
            if process.gate is not None:
                process.gate.close()
            return
        del self._connected[process.connection.fileno()]
        _quietly_unregister(self._poll, process.connection)
        outcome = describe_ending(
            status,
            usage,
            limit=process.limit,
            limits=process.limits,
            inherited=self._own_memory,
            kills_are_external=self._confinement.kills_are_external,
            counter=self._counter,
            group=process.slot.group,
        )
        outcome["killed"] = outcome["killed"] and not process.stopped
        outcome["seconds"] = round(monotonic() - process.started, 6)
        if setup_error:
            outcome = {"broken": setup_error}
        self._reply(process.connection, outcome)

    def _setup_error(self, slot: ConfinementSlot) -> str:
        """Return the error that occurred while confining the process in `slot`, or ""."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._error_reader, 1 << 16).decode("utf-8", "replace").split("\0"):
                index, _, error = line.partition(" ")
                if index:
                    self._setup_errors[int(index)] = error
        return self._setup_errors.pop(slot.index, "")

    def _reply(self, connection: socket.socket, outcome: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the host may have closed the connection
            connection.send(json.dumps(outcome).encode())
        connection.close()

    def _check_limits(self) -> None:
        """Kill programs whose processes exceed the limit on time, memory or CPU time."""
        now = monotonic()
        self._next_check = now + CHECK_INTERVAL
        for process in self._connected.values():
            if process.deadline is not None and now >= process.deadline:
                process.kill("time")
        programs = [process for process in self._connected.values() if now - process.started > CHECK_INTERVAL / 2]
        usage = all_usage() if any(process.limits["kind"] != "batch" for process in programs) else {}
        for process in programs:
            if process.limits["kind"] == "batch":
                continue  # the batch's supervisor checks the limits of each process
            if process.meter is None:
                process.meter = UsageMeter(process.pid, self._own_memory)
            process.meter.update(usage, now, process.limits["memory"])
            if process.meter.memory > process.limits["memory"]:
                process.kill("memory")
            elif process.limits["kind"] == "run" and process.meter.cpu > process.limits["cpu"]:
                process.kill("cpu")

    def _clean_up(self, process: ProgramProcess) -> None:
        """Kill the processes that the program left running, and remove its directory; not needed with namespaces."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        remove_leftovers([other.pid for other in self._processes.values()])
        if process.folder:
            remove_folder(process.folder)


def _quietly_unregister(poll: select.poll, connection: socket.socket) -> None:
    try:
        poll.unregister(connection)
    except KeyError:
        return


def main() -> None:
    """Run the template process: `python -c ... CONTROL LEVEL FIRST_UID MODULES GROUPS`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    for name in filter(None, sys.argv[4].split(",")):
        try:
            importlib.import_module(name)
            if name == "numpy":
                importlib.import_module("numpy.random")  # numpy imports numpy.random lazily
        except ImportError:
            continue  # the module is not installed; a program that imports it gets the usual error
    confinement = Confinement(level=sys.argv[2], first_uid=int(sys.argv[3]), groups=int(sys.argv[5]))
    template = Template(control, confinement)
    sys.argv = ["main.py"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "palestra"]:
        del sys.modules[name]  # a new interpreter would not have these modules either
    gc.collect()
    gc.disable()
    gc.freeze()  # otherwise the first garbage collection in each fork would copy every page
    control.send(b"ready")
    template.serve()

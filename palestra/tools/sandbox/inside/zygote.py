"""The template: a warm interpreter that forks itself for every program, watches over it and tells how it ended.

A request is one message on the control socket, with the file descriptors that belong to it: the connection on which the
end is told, the request itself (code and files), what the program will see as its output, errors and input. The
template never reads a request, so that a program, which is a copy of it, holds nothing of anybody else's. A few forks
are made ahead and wait, confined already, for the next requests under the same limits. A connection that is closed by
the other side ends its program.
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

from palestra.tools.sandbox.inside.confine import Confinement, Slot, Steps
from palestra.tools.sandbox.inside.prefixes import HOME
from palestra.tools.sandbox.inside.runner import Program
from palestra.tools.sandbox.inside.usage import tree, usage_of_all
from palestra.tools.sandbox.inside.work import CHANNEL, Work, close_but, converse, fresh

TICK = 0.05  # seconds between looks at what running programs use
FEW, MANY = 1, 5  # cells that wait: when there are few, make many


class Cell:
    """A fork of the template: confined, waiting for its program; then running it."""

    def __init__(self, pid: int, slot: Slot, gate: socket.socket, limits: dict[str, Any], folder: str) -> None:
        self.pid = pid
        self.handle = os.pidfd_open(pid)
        self.slot = slot
        self.gate: socket.socket | None = gate  # its request goes through here
        self.limits = limits
        self.folder = folder
        self.connection: socket.socket | None = None  # whoever asked; None: it waits
        self.began = 0.0
        self.deadline: float | None = None
        self.limit = ""  # what it was ended for

    def run(self, message: bytes, handles: list[int], connection: socket.socket) -> None:
        """Give it its program; `connection` is whoever asked for it."""
        self.connection = connection
        connection.setblocking(False)
        self.began = monotonic()
        if self.limits["once"]:
            self.deadline = self.began + self.limits["wall"]
        if self.gate is not None:
            with contextlib.suppress(OSError):  # it may have died; its end will be noticed as any other
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
    def __init__(self, control: socket.socket, confinement: Confinement) -> None:
        self._control = control
        self._confinement = confinement
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._cells: dict[int, Cell] = {}  # by handle: waiting and running
        self._connected: dict[int, Cell] = {}  # by connection: running
        self._waiting: list[tuple[bytes, Cell]] = []  # with the limits they are under; the latest last
        self._wanted = b""  # limits under which others should wait
        self._limits: dict[bytes, dict[str, Any]] = {}
        self._slots: list[Slot] = []  # free ones
        self._made = 0
        self._troubles: dict[int, str] = {}  # by slot: what went wrong in setting it up
        self._trouble, troubled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._troubled = fcntl.fcntl(troubled, fcntl.F_DUPFD_CLOEXEC, 200)  # out of the way of a program's own
        os.close(troubled)
        self._next_look = 0.0
        self._own = usage_of_all().get(os.getpid(), (0, 0, 0.0))[1]

    def serve(self) -> None:
        """Until the control socket closes; then this process ends, and with it everything it started."""
        while True:
            for handle, event in self._poll.poll(self._patience()):
                if handle == self._control.fileno():
                    if not self._accept():
                        return self._end()
                elif handle in self._cells:
                    self._finish(self._cells[handle])
                elif handle in self._connected:
                    self._told(self._connected[handle], event)
            if self._connected and monotonic() >= self._next_look:
                self._watch()
            if self._wanted:
                self._prepare()

    def _patience(self) -> float | None:
        """Milliseconds until a look around is due: soon for programs, in a while for sessions that may be idle."""
        if not self._connected:
            return None
        return 1000 * TICK * (1 if any(cell.deadline is not None for cell in self._connected.values()) else 10)

    def _end(self) -> None:
        for cell in self._cells.values():
            cell.kill()
        for cell in list(self._cells.values()):
            self._finish(cell)

    def _accept(self) -> bool:
        """Take one request; False: nobody will send another."""
        message, handles, _, _ = socket.recv_fds(self._control, 8192, 8)
        if not message:
            return False
        connection = socket.socket(fileno=handles.pop(0))
        kind, _, limits = message.partition(b" ")
        try:
            cell = self._taken(limits)
            cell.run(kind, handles, connection)
            if not self._connected:
                self._next_look = cell.began + TICK
            self._connected[connection.fileno()] = cell
            self._poll.register(connection, select.POLLIN)
            self._wanted = limits
        except OSError as err:
            self._tell(connection, {"broken": f"{type(err).__name__}: {err}"})
        finally:
            for handle in handles:
                os.close(handle)
        return True

    def _taken(self, limits: bytes) -> Cell:
        """A waiting cell under these limits, or a new one."""
        for index in range(len(self._waiting) - 1, -1, -1):
            if self._waiting[index][0] == limits:
                return self._waiting.pop(index)[1]
        return self._forked(limits)

    def _prepare(self) -> None:
        """Let cells wait for the next requests, under the limits of the last one.

        Several at a time: after a fork, whatever the template writes to is copied, and so it pays to fork again first.
        """
        limits, self._wanted = self._wanted, b""
        count = 0
        for known, _ in self._waiting:
            count += known == limits
        if count > FEW:
            return
        try:
            for _ in range(MANY - count):
                self._waiting.append((limits, self._forked(limits)))
        except OSError:
            return  # the next request will meet the same, and be told
        while len(self._waiting) > 2 * MANY:
            self._waiting.pop(0)[1].kill()

    def _forked(self, wire: bytes) -> Cell:
        limits = self._limits.get(wire)
        if limits is None:
            if len(self._limits) >= 64:
                self._limits.clear()
            limits = self._limits[wire] = json.loads(wire)
        slot = self._slots.pop() if self._slots else self._new_slot()
        folder = ""
        if self._confinement.level == "none":
            import tempfile

            folder = tempfile.mkdtemp(prefix="palestra-")
        steps = slot.plans.get(wire)
        if steps is None or folder:
            steps = self._confinement.plan(slot, limits, folder)
            slot.plans.clear()
            slot.plans[wire] = steps
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._confinement.before_fork()
        pid = os.fork()
        if pid == 0:
            self._become(slot, steps, theirs, folder)
        theirs.close()
        cell = Cell(pid, slot, ours, limits, folder)
        self._cells[cell.handle] = cell
        self._poll.register(cell.handle, select.POLLIN)
        return cell

    def _new_slot(self) -> Slot:
        self._made += 1
        return self._confinement.new_slot(self._made)

    def _become(self, slot: Slot, steps: Steps, gate: socket.socket, folder: str) -> None:
        """In the fork: shut the door, wait for a program, be it. Does not return."""
        code = 1
        try:
            try:
                self._confinement.enter(steps)
                close_but(gate.fileno(), self._troubled)
                self._confinement.seal()
                Program(echo=True, brief=True).run(b"print(end='')")  # touches what a program will, while there is time
                kind, handles, _, _ = socket.recv_fds(gate, 16, 8)
                if not kind:
                    os._exit(0)  # nobody needs it any more
                work = Work(handles[0])
                session = kind.startswith(b"session")
                given = handles[3] if kind.endswith(b"+") else os.open(os.devnull, os.O_RDONLY)
                for target, handle in enumerate((given, handles[1], handles[2])):
                    os.dup2(handle, target)
                channel = handles[-1] if session else handles[0]
                if channel == CHANNEL:
                    os.set_inheritable(channel, False)
                else:
                    os.dup2(channel, CHANNEL, inheritable=False)
                close_but(CHANNEL, self._troubled)
                fresh(work.seed, folder or HOME)
            except BaseException as err:  # noqa: BLE001  # told apart from whatever the program will do
                os.write(self._troubled, f"{slot.index} {type(err).__name__}: {err}"[:500].encode() + b"\0")
                os._exit(1)
            os.close(self._troubled)
            if session:
                code = converse(work)
            else:
                program = Program(echo=work.echo, brief=work.brief)
                code, limit = program.run(work.code)
                code = program.finish(code)
                if limit:
                    os.pwrite(CHANNEL, limit.encode(), 0)
        finally:
            os._exit(code)

    def _told(self, cell: Cell, event: int) -> None:
        """The other side wants something of a running program, or is gone."""
        if cell.connection is None:
            return
        try:
            asked = cell.connection.recv(16) if event & select.POLLIN else b""
        except OSError:
            asked = b""
        if asked == b"interrupt":
            with contextlib.suppress(ProcessLookupError):
                os.kill(cell.pid, signal.SIGINT)
        else:
            self._poll.unregister(cell.connection)  # it would be reported again and again
            cell.kill()

    def _finish(self, cell: Cell) -> None:
        _, status, usage = os.wait4(cell.pid, 0)
        self._poll.unregister(cell.handle)
        del self._cells[cell.handle]
        os.close(cell.handle)
        if cell.folder:
            self._sweep(cell)
        self._slots.append(cell.slot)
        trouble = self._read_trouble(cell.slot) if status else ""
        if cell.connection is None:  # it was only waiting
            self._waiting = [(limits, other) for limits, other in self._waiting if other is not cell]
            if cell.gate is not None:
                cell.gate.close()
            return
        del self._connected[cell.connection.fileno()]
        _quietly_unregister(self._poll, cell.connection)
        signalled = os.WIFSIGNALED(status)
        spent = usage.ru_utime + usage.ru_stime
        limit = cell.limit
        if not limit and signalled and os.WTERMSIG(status) == signal.SIGKILL and spent >= cell.limits["cpu"] - 0.1:
            limit = "cpu"
        answer: dict[str, Any] = {
            "exit": None if signalled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if signalled else None,
            "limit": limit,
            "cpu": round(spent, 6),
            "seconds": round(monotonic() - cell.began, 6),
        }
        if trouble:
            answer = {"broken": trouble}
        self._tell(cell.connection, answer)

    def _read_trouble(self, slot: Slot) -> str:
        """Why the fork in that slot could not be set up; "" where it was."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._trouble, 1 << 16).decode("utf-8", "replace").split("\0"):
                index, _, why = line.partition(" ")
                if index:
                    self._troubles[int(index)] = why
        return self._troubles.pop(slot.index, "")

    def _tell(self, connection: socket.socket, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # whoever asked may not want to know any more
            connection.send(json.dumps(answer).encode())
        connection.close()

    def _watch(self) -> None:
        """End what is over its time, its memory or its share of the processor, whole trees of processes."""
        now = monotonic()
        self._next_look = now + TICK
        for cell in self._connected.values():
            if cell.deadline is not None and now >= cell.deadline:
                cell.kill("time")
        old = [cell for cell in self._connected.values() if now - cell.began > TICK / 2]
        if old:
            usage = usage_of_all()
            for cell in old:
                memory, cpu = tree(usage, cell.pid, self._own)
                if memory > cell.limits["memory"]:
                    cell.kill("memory")
                elif cell.limits["once"] and cpu > cell.limits["cpu"]:
                    cell.kill("cpu")

    def _sweep(self, cell: Cell) -> None:
        """Without namespaces: end what the program left behind, and remove its folder."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(cell.pid, signal.SIGKILL)
        known = {other.pid for other in self._cells.values()}
        for pid, (parent, _, _) in usage_of_all().items():
            if parent == os.getpid() and pid not in known:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                except (ProcessLookupError, ChildProcessError):
                    continue
        import shutil

        shutil.rmtree(cell.folder, ignore_errors=True)


def _quietly_unregister(poll: select.poll, connection: socket.socket) -> None:
    try:
        poll.unregister(connection)
    except KeyError:
        return


def main() -> None:
    """`python -c ... CONTROL LEVEL FIRST_UID MODULES`: be the template."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    for name in filter(None, sys.argv[4].split(",")):
        try:
            importlib.import_module(name)
            if name == "numpy":
                importlib.import_module("numpy.random")  # which it loads when first used
        except ImportError:
            continue  # not installed here; the program will be told when it asks for it
    confinement = Confinement(level=sys.argv[2], first_uid=int(sys.argv[3]))
    template = Template(control, confinement)
    sys.argv = ["main.py"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "palestra"]:
        del sys.modules[name]  # a program finds what it would find in a new interpreter
    gc.collect()
    gc.disable()
    gc.freeze()  # or the first collection in every fork would copy every page
    control.send(b"ready")
    template.serve()

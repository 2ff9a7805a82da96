"""Confine a fork of the template: namespaces, private directory and /proc, resource limits, no privileges."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import struct
from collections.abc import Callable
from typing import Any

from palestra.tools.sandbox.guest import seccomp
from palestra.tools.sandbox.guest.groups import SlotGroup
from palestra.tools.sandbox.guest.paths import HOME, covered_prefixes

_NEWNS, _NEWIPC, _NEWUTS, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000,
    0x08000000,
    0x04000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND = 1, 2, 4, 8, 4096
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 4, 38, 36
_CAPABILITY_VERSION = 0x20080522
FILES = 4096  # maximum number of files and directories that a program can create


class ConfinementSlot:
    """User id and network namespace for a running program; later programs reuse them."""

    def __init__(self, index: int, network: int, group: SlotGroup | None = None) -> None:
        self.index = index
        self.group = group  # memory control group, if one can be created
        self.network = network  # descriptor of a network namespace in which no interface is up, or -1
        self.plans: dict[bytes, tuple[Steps, Steps]] = {}  # prepared steps, keyed by serialized limits


Steps = list[tuple[Callable[..., int], tuple[Any, ...]]]  # functions that return 0 on success


class Confinement:
    """Steps that confine a process, prepared in the template and executed in its forks.

    Every memory page that a fork writes to is copied, which takes longer than most system calls. Therefore `plan`
    prepares all arguments in the template, and the fork only has to make the system calls.
    """

    def __init__(self, *, level: str, first_uid: int, groups: int = -1) -> None:
        """Prepare the system calls.

        `level` is "root" (setuid to the slot's user id), "user" (one user namespace per program) or "none". `groups` is
        the descriptor of a control group in which groups for the slots are created, or -1.
        """
        self.level = level
        self._first_uid = first_uid
        self._libc = libc = ctypes.CDLL(None, use_errno=True)
        self.pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if level != "none" else -1
        self._base = _virtual_memory()
        self._filter_buffers: list[Any] = []
        number, text, pointer = ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p
        for function, types in (
            (libc.setns, (number, number)),
            (libc.unshare, (number,)),
            (libc.mount, (text, text, text, number, text)),
            (libc.capset, (text, text)),
            (libc.prctl, (number, pointer, pointer, number, number)),
        ):
            function.argtypes = types
            function.restype = ctypes.c_int
        self._filter: Steps = []
        self._covered = covered_prefixes() if level != "none" else []
        words = seccomp.program() if level != "none" else None
        if words is not None:
            address, self._filter_buffers = seccomp.filter_pointer(words)
            self._filter = [(libc.prctl, (seccomp.PR_SET_SECCOMP, seccomp.FILTER, address, 0, 0))]
        # True if a program cannot kill itself, so that a kill without an exceeded limit came from outside (ending.py).
        self.kills_are_external = bool(self._filter)
        if level == "none":
            self.adopt_orphans()
        else:
            set_kill_priority(1000)  # if the machine runs out of memory, programs are killed first
        self._groups = groups if self._can_use(groups) else -1

    def new_slot(self, index: int) -> ConfinementSlot:
        if self.level == "none":
            return ConfinementSlot(index, -1)
        self._execute([(self._libc.unshare, (_NEWNET,))])
        network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        return ConfinementSlot(index, network, SlotGroup(self._groups, index) if self._groups >= 0 else None)

    def _can_use(self, groups: int) -> bool:
        """Return whether programs can be moved to groups in this directory, determined by moving a process."""
        if groups < 0:
            return False
        try:
            group = SlotGroup(groups, 0)
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(group.enter())
                finally:
                    os._exit(1)
            usable = os.waitpid(pid, 0)[1] == 0
            group.close()
            os.rmdir("0", dir_fd=groups)
        except (OSError, ValueError):
            return False
        return usable

    def before_fork(self) -> None:
        """Make the next fork the init process of a new pid namespace.

        When the init process exits, the kernel kills all other processes in the namespace.
        """
        if self.level != "none":
            self._execute([(self._libc.setns, (self.pids, _NEWPID)), (self._libc.unshare, (_NEWPID,))])

    def adopt_orphans(self) -> None:
        """Make orphaned descendants, such as daemons, children of this process."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def supervisor_plan(self, slot: ConfinementSlot) -> Steps:
        """Return the steps for a process that runs no untrusted code, but forks processes that do.

        It keeps the privileges of the template. Its own /proc lets it measure the processes that it forks.
        """
        if self.level == "none":
            # Other processes of the same user cannot read its memory or open its files through /proc.
            return [(_new_session, ()), (self._libc.prctl, (_PR_SET_DUMPABLE, 0, None, 0, 0))]
        return [
            (_new_session, ()),
            *([] if slot.group is None else [(slot.group.enter, ())]),
            (self._libc.setns, (slot.network, _NEWNET)),
            (self._libc.unshare, (_NEWNS,)),
            (self._libc.mount, (b"proc", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None)),
        ]

    def supervise(self) -> None:
        """Prepare this process to fork programs, after the steps of `supervisor_plan`."""
        if self.level == "none":
            self.adopt_orphans()
        else:
            self.pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(PermissionError):  # a priority below the host's own requires privileges
                set_kill_priority(0)  # the supervisor's programs are killed first

    def plan(self, slot: ConfinementSlot, limits: dict[str, Any], folder: str) -> Steps:
        """Return the steps that isolate a program from the host. At level "none", `folder` is its working directory."""
        libc = self._libc
        if self.level == "none":
            return [(_new_session, ()), (_use_folder, (folder,)), (_set_limits, (self._limits(limits),))]
        root, batch = self.level == "root", limits["kind"] == "batch"
        uid, gid = [self._first_uid + slot.index] * 2 if root else [os.getuid(), os.getgid()]
        mode = 1777 if self._covered else 700  # mount points are created in HOME before setuid
        options = f"size={limits['disk']},nr_inodes={FILES},mode={mode},uid={uid},gid={gid}".encode()
        steps: Steps = [
            (_new_session, ()),  # a signal to the process group reaches only this program
            *([(set_kill_priority, (1000,))] if batch else []),
            # In a batch, the supervisor is already in the control group and in the network namespace.
            *([] if batch or slot.group is None else [(slot.group.enter, ())]),
            *([] if batch else [(libc.setns, (slot.network, _NEWNET))]),
            # The system call filter refuses IPC and UTS calls; without the filter, new namespaces are needed for them.
            (libc.unshare, (_NEWNS if self._filter else _NEWNS | _NEWIPC | _NEWUTS,)),
            (libc.mount, (b"tmpfs", HOME.encode(), b"tmpfs", _NOSUID | _NODEV, options)),
            *(step for path, relocated in self._covered for step in self._mount_again(path, relocated)),
            # A read-only /proc prevents, for example, writes to oom_score_adj.
            (libc.mount, (b"proc", b"/proc", b"proc", _RDONLY | _NOSUID | _NODEV | _NOEXEC, None)),
        ]
        if root:
            steps.append((_set_user, (uid,)))  # setting the user id drops all capabilities
        else:
            steps.append((libc.unshare, (_NEWUSER,)))  # the namespace counts processes separately and maps no user ids
            no_capabilities = struct.pack("<6I", *[0] * 6)
            steps.append((libc.capset, (struct.pack("<Ii", _CAPABILITY_VERSION, 0), no_capabilities)))
        # The limits are set after unshare, because a new user namespace inherits the limits of its creator.
        steps.append((_set_limits, (self._limits(limits),)))
        steps.append((libc.prctl, (_PR_SET_DUMPABLE, 1, None, 0, 0)))  # otherwise /proc/self would be unreadable
        steps.append((libc.prctl, (_PR_SET_NO_NEW_PRIVS, 1, None, 0, 0)))
        return steps

    def _mount_again(self, path: str, relocated: str) -> Steps:
        """Bind an interpreter prefix from its second mount point to its original path; it stays read-only."""
        return [(_make_directory, (path,)), (self._libc.mount, (relocated.encode(), path.encode(), None, _BIND, None))]

    def enter(self, steps: Steps) -> None:
        self._execute(steps)
        if self.level != "none":
            os.chdir(HOME)

    def seal(self) -> None:
        """Install the system call filter. Further setup is impossible, because the filter refuses its system calls."""
        self._execute(self._filter)

    def _limits(self, limits: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
        seconds = max(1, math.ceil(limits["cpu"]))
        values = {
            resource.RLIMIT_AS: self._base + limits["memory"],
            resource.RLIMIT_CPU: resource.RLIM_INFINITY if limits["kind"] == "session" else seconds,
            resource.RLIMIT_FSIZE: limits["file"],
            resource.RLIMIT_NPROC: limits["processes"],
            resource.RLIMIT_NOFILE: limits["open_files"],
            resource.RLIMIT_CORE: 0,
        }
        if self.level == "none":
            del values[resource.RLIMIT_NPROC]  # the kernel would count all of the user's processes on the host
        return [(name, (value, value)) for name, value in values.items()]

    def _execute(self, steps: Steps) -> None:
        for function, args in steps:
            if function(*args) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


def _set_limits(values: list[tuple[int, tuple[int, int]]]) -> int:
    for name, value in values:
        resource.setrlimit(name, value)
    return 0


def _set_user(uid: int) -> int:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    return 0


def _new_session() -> int:
    os.setsid()
    return 0


def set_kill_priority(value: int) -> int:
    """Set the priority with which the out-of-memory killer selects this process, from 0 to 1000."""
    handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(handle, str(value).encode())
    os.close(handle)
    return 0


def _use_folder(folder: str) -> int:
    os.chdir(folder)
    os.environ["HOME"] = os.environ["TMPDIR"] = folder
    return 0


def _make_directory(path: str) -> int:
    os.umask(0o022)
    os.makedirs(path, exist_ok=True)  # noqa: PTH103
    return 0


def _virtual_memory() -> int:
    """Return the size of the template's own address space, which every program inherits."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123  # nothing else here needs pathlib
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

"""A fork of the template -> a program's cell: namespaces, a private directory, its own /proc, limits, no privileges."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import struct
from collections.abc import Callable
from typing import Any

from palestra.tools.sandbox.inside import seccomp
from palestra.tools.sandbox.inside.prefixes import HOME, covered

_NEWNS, _NEWIPC, _NEWUTS, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000,
    0x08000000,
    0x04000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_NOSUID, _NODEV, _NOEXEC, _BIND = 2, 4, 8, 4096
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 4, 38, 36
_CAPABILITY_VERSION = 0x20080522
FILES = 4096  # files and folders at most; a full table of them is a full disk


class Slot:
    """What one running program has to itself, and the next one may have after it."""

    def __init__(self, index: int, network: int) -> None:
        self.index = index
        self.network = network  # a network namespace without an interface that is up, -1: none
        self.plans: dict[bytes, Steps] = {}  # under the limits they are for


Steps = list[tuple[Callable[..., int], tuple[Any, ...]]]  # functions that return 0 when they have worked


class Confinement:
    """Made once in the template; `plan` is called before every fork, and its steps are taken in it.

    Every page a fork touches is copied, which costs more than most system calls. So all that can be is made ready
    in the template: the fork itself does little more than the calls.
    """

    def __init__(self, *, level: str, first_uid: int) -> None:
        """`level`: "root" (setuid to a user of the slot's own), "user" (a user namespace a call) or "none"."""
        self.level = level
        self._first_uid = first_uid
        self._libc = libc = ctypes.CDLL(None, use_errno=True)
        self._pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if level != "none" else -1
        self._base = _virtual_memory()
        self._kept: list[Any] = []
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
        self._covered = covered() if level != "none" else []
        words = seccomp.program() if level != "none" else None
        if words is not None:
            pointed, self._kept = seccomp.pointed(words)
            self._filter = [(libc.prctl, (seccomp.PR_SET_SECCOMP, seccomp.FILTER, pointed, 0, 0))]
        if level == "none":
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that daemons left behind can be found
        else:
            _write("/proc/self/oom_score_adj", "1000")  # where the machine runs out of memory, programs go first

    def new_slot(self, index: int) -> Slot:
        if self.level == "none":
            return Slot(index, -1)
        self._take([(self._libc.unshare, (_NEWNET,))])
        return Slot(index, os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    def before_fork(self) -> None:
        """The next fork is the first process of a new pid namespace: when it ends, the kernel ends all others."""
        if self.level != "none":
            self._take([(self._libc.setns, (self._pids, _NEWPID)), (self._libc.unshare, (_NEWPID,))])

    def plan(self, slot: Slot, limits: dict[str, Any], folder: str) -> Steps:
        """After these steps the process can do nothing to anything outside. `folder`: where to work at level "none"."""
        libc = self._libc
        if self.level == "none":
            return [(_settle, (folder,)), (_limit, (self._limits(limits),))]
        root = self.level == "root"
        uid, gid = [self._first_uid + slot.index] * 2 if root else [os.getuid(), os.getgid()]
        mode = 1777 if self._covered else 700  # in which folders can be made before the program's user is taken on
        options = f"size={limits['disk']},nr_inodes={FILES},mode={mode},uid={uid},gid={gid}".encode()
        steps: Steps = [
            (libc.setns, (slot.network, _NEWNET)),
            (libc.unshare, (_NEWNS if self._filter else _NEWNS | _NEWIPC | _NEWUTS,)),  # the filter closes the others
            (libc.mount, (b"tmpfs", HOME.encode(), b"tmpfs", _NOSUID | _NODEV, options)),
            *(step for path, apart in self._covered for step in self._shown_again(path, apart)),
            (libc.mount, (b"proc", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None)),
        ]
        if root:
            steps.append((_become, (uid,)))  # takes all capabilities along
        else:
            steps.append((libc.unshare, (_NEWUSER,)))  # an own count of processes; and nobody in it
            nothing = struct.pack("<6I", *[0] * 6)
            steps.append((libc.capset, (struct.pack("<Ii", _CAPABILITY_VERSION, 0), nothing)))
        steps.append((_limit, (self._limits(limits),)))  # now: a namespace counts by what held when it was made
        steps.append((libc.prctl, (_PR_SET_DUMPABLE, 1, None, 0, 0)))  # or /proc/self would be closed to it
        steps.append((libc.prctl, (_PR_SET_NO_NEW_PRIVS, 1, None, 0, 0)))
        return steps

    def _shown_again(self, path: str, apart: str) -> Steps:
        """The interpreter's packages where they were; as read-only as the mount they are taken from."""
        return [(_make, (path,)), (self._libc.mount, (apart.encode(), path.encode(), None, _BIND, None))]

    def enter(self, steps: Steps) -> None:
        self._take(steps)
        if self.level != "none":
            os.chdir(HOME)

    def seal(self) -> None:
        """The system calls that are left; after this there is no setting up."""
        self._take(self._filter)

    def _limits(self, limits: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
        seconds = max(1, math.ceil(limits["cpu"]))
        values = {
            resource.RLIMIT_AS: self._base + limits["memory"],
            resource.RLIMIT_CPU: seconds if limits["once"] else resource.RLIM_INFINITY,
            resource.RLIMIT_FSIZE: limits["file"],
            resource.RLIMIT_NPROC: limits["processes"],
            resource.RLIMIT_NOFILE: limits["open_files"],
            resource.RLIMIT_CORE: 0,
        }
        if self.level == "none":
            del values[resource.RLIMIT_NPROC]  # it counts everything of the host's user
        return [(what, (value, value)) for what, value in values.items()]

    def _take(self, steps: Steps) -> None:
        for function, args in steps:
            if function(*args) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


def _limit(values: list[tuple[int, tuple[int, int]]]) -> int:
    for what, value in values:
        resource.setrlimit(what, value)
    return 0


def _become(uid: int) -> int:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    return 0


def _settle(folder: str) -> int:
    os.setsid()
    os.chdir(folder)
    os.environ["HOME"] = os.environ["TMPDIR"] = folder
    return 0


def _make(path: str) -> int:
    os.umask(0o022)
    os.makedirs(path, exist_ok=True)  # noqa: PTH103
    return 0


def _virtual_memory() -> int:
    """What the template itself takes of a program's address space."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123  # pathlib is not worth its import here
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)

"""This machine -> how well it can isolate a program, found out once by trying, and the command line that does it."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from palestra.tools.sandbox.inside import seccomp
from palestra.tools.sandbox.inside.prefixes import APART, HOME, covered, prefixes

INSTALL = "Debian, Ubuntu: apt-get install bubblewrap. Fedora: dnf install bubblewrap. Arch: pacman -S bubblewrap"
CODE = "/run/palestra"  # where the inside finds its code
ENVIRONMENT = {  # all of the host's environment that a program sees: nothing
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "TMPDIR": HOME,
    "USER": "box",
    "LOGNAME": "box",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "KILL")  # of the template; programs have none
_DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How well programs are kept apart from this machine."""

    name: Literal["bubblewrap", "none"]
    why: str = ""  # what is missing, where something is
    fix: str = ""

    @property
    def inside(self) -> str:
        """How the template keeps programs apart: see `Confinement`."""
        return "none" if self.name == "none" else "root" if os.geteuid() == 0 else "user"


@functools.cache
def level() -> Level:
    """What this machine offers; tried out once."""
    if sys.platform != "linux":
        return Level(
            name="none", why=f"isolation is built on Linux namespaces, this is {sys.platform}", fix="use Linux"
        )
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return Level(name="none", why="bubblewrap is not installed", fix=INSTALL)
    command = [bwrap, *_view(os.geteuid() == 0), "--", "/usr/bin/env", "true"]
    try:
        tried = subprocess.run(command, env={}, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        return Level(name="none", why=f"bubblewrap does not start: {err}", fix=_hint())
    if tried.returncode != 0:
        why = f"bubblewrap is installed but may not make namespaces here: {tried.stderr.strip()[-300:]}"
        return Level(name="none", why=why, fix=_hint())
    if seccomp.program() is None:
        return Level(
            name="bubblewrap",
            why=f"no filter of system calls is known for {platform.machine()}",
            fix="use x86-64 or arm64",
        )
    return Level(name="bubblewrap")


def _hint() -> str:
    for path, value, fix in (
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ):
        try:
            if Path(path).read_text().strip() == value:
                return f"as root: {fix}"
        except OSError:
            continue
    return (
        "let this container make namespaces: docker run --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined --cap-add SYS_ADMIN, or run Palestra outside of it"
    )


def command(interpreter: list[str], *, control: int, info: int, data: dict[str, int]) -> list[str]:
    """bwrap's whole command line. `data`: file inside -> descriptor it is filled from."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:  # it was there when the level was found out
        raise FileNotFoundError("bwrap")
    del control  # inherited; named in the interpreter's own arguments
    files = [arg for path, handle in data.items() for arg in ("--perms", "0444", "--file", str(handle), path)]
    return [
        bwrap,
        *_view(os.geteuid() == 0),
        *_code(),
        *files,
        "--info-fd",
        str(info),
        "--remount-ro",
        "/",
        "--as-pid-1",
        "--",
        *interpreter,
    ]


def _view(root: bool) -> list[str]:
    """What of this machine can be seen, and what not: namespaces, and a file system of read-only parts."""
    args = [
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--hostname",
        "box",
    ]
    if root:
        args += [arg for name in _CAPABILITIES for arg in ("--cap-add", f"CAP_{name}")]
    else:
        args += ["--unshare-user", "--cap-add", "ALL"]
    args += ["--proc", "/proc"]
    folders = [HOME, "/etc", "/dev", CODE, *(APART for _ in covered()[:1])]
    for folder in [*(f"{name}/-" for name in folders), *prefixes()]:
        for parent in reversed(Path(folder).parents[:-1]):  # bwrap would make them for root's eyes alone
            args += ["--perms", "0755", "--dir", str(parent)]
    for name in ("/usr", *prefixes()):
        args += ["--ro-bind", name, name]
    for name, apart in covered():
        args += ["--perms", "0755", "--dir", apart, "--ro-bind", name, apart]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        path = Path(name)
        if path.is_symlink():
            args += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            args += ["--ro-bind", name, name]
    for name in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/ssl/certs", "/etc/mime.types"):
        args += ["--ro-bind-try", name, name]
    for name in _DEVICES:
        args += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        args += ["--symlink", f"/proc/self/{target}", f"/dev/{name}"]
    return [*args, "--symlink", HOME, "/dev/shm", "--chdir", "/"]  # noqa: S108


def _code() -> list[str]:
    inside = f"{CODE}/palestra/tools/sandbox/inside"
    parents = [
        arg for parent in reversed(Path(inside).parents[:-1]) for arg in ("--perms", "0755", "--dir", str(parent))
    ]
    return [*parents, "--ro-bind", str(Path(__file__).parent / "inside"), inside]


def data_files() -> dict[str, bytes]:
    """Small files that the inside needs and the host's own are not shown for."""
    packages = [f"{CODE}/palestra/{name}__init__.py" for name in ("", "tools/", "tools/sandbox/")]
    return {
        **dict.fromkeys(packages, b""),
        "/etc/passwd": b"root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:box:/tmp:/bin/sh\n",
        "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
        "/etc/hosts": b"127.0.0.1 localhost box\n",
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    }

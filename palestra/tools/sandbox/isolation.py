"""Detect which isolation this machine supports, and build the bubblewrap command line that applies it."""

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

from palestra.tools.sandbox.guest import seccomp
from palestra.tools.sandbox.guest.paths import HOME, RELOCATED, covered_prefixes, interpreter_prefixes

INSTALL = "Debian, Ubuntu: apt-get install bubblewrap. Fedora: dnf install bubblewrap. Arch: pacman -S bubblewrap"
CODE = "/run/palestra"  # mount point of the guest code inside the sandbox
ENVIRONMENT = {  # complete set of environment variables for a program; none are inherited from the host
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "TMPDIR": HOME,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
# Capabilities of the template process; programs have none. SYS_PTRACE is needed to measure the memory of programs.
_CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "KILL", "SYS_PTRACE")
_DEVICES = ("null", "full", "random", "urandom")  # a shared mapping of /dev/zero would be memory that no limit covers


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationLevel:
    """Isolation available on this machine."""

    name: Literal["bubblewrap", "none"]
    why: str = ""  # reason why full isolation is not available, or ""
    fix: str = ""  # command or change that makes full isolation available

    @property
    def confinement(self) -> str:
        """Method by which the template process confines programs (the `level` argument of `Confinement`)."""
        return "none" if self.name == "none" else "root" if os.geteuid() == 0 else "user"


@functools.cache
def isolation_level() -> IsolationLevel:
    """Return the isolation that this machine supports, determined by starting bubblewrap once."""
    if sys.platform != "linux":
        return IsolationLevel(
            name="none", why=f"isolation needs Linux namespaces, but this is {sys.platform}", fix="use Linux"
        )
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return IsolationLevel(name="none", why="bubblewrap is not installed", fix=INSTALL)
    command = [bwrap, *_view(os.geteuid() == 0), "--", "/usr/bin/env", "true"]
    try:
        trial = subprocess.run(command, env={}, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        return IsolationLevel(name="none", why=f"bubblewrap does not start: {err}", fix=_hint())
    if trial.returncode != 0:
        why = f"bubblewrap is installed but cannot create namespaces here: {trial.stderr.strip()[-300:]}"
        return IsolationLevel(name="none", why=why, fix=_hint())
    if seccomp.program() is None:
        return IsolationLevel(
            name="bubblewrap",
            why=f"there is no system call filter for {platform.machine()}",
            fix="use x86-64 or arm64",
        )
    return IsolationLevel(name="bubblewrap")


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
        "allow this container to create namespaces (docker run --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined --cap-add SYS_ADMIN), or run Palestra outside the container"
    )


def command(interpreter: list[str], *, info: int, data: dict[str, int], hide_groups: bool) -> list[str]:
    """Return the bwrap command line. `data` maps paths in the sandbox to descriptors from which to read the files.

    `hide_groups` creates a cgroup namespace, inside which processes cannot be moved to cgroup v2 groups.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:  # bubblewrap was uninstalled after the isolation level was determined
        raise FileNotFoundError("bwrap")
    files = [arg for path, handle in data.items() for arg in ("--perms", "0444", "--file", str(handle), path)]
    return [
        bwrap,
        *_view(os.geteuid() == 0),
        *(["--unshare-cgroup-try"] if hide_groups else []),
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
    """Return the options that set up the namespaces and a read-only view of parts of the host's file system."""
    args = [
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--hostname",
        "sandbox",
    ]
    if root:
        args += [arg for name in _CAPABILITIES for arg in ("--cap-add", f"CAP_{name}")]
    else:
        args += ["--unshare-user", "--cap-add", "ALL"]
    args += ["--proc", "/proc"]
    folders = [HOME, "/etc", "/dev", CODE, *(RELOCATED for _ in covered_prefixes()[:1])]
    for folder in [*(f"{name}/-" for name in folders), *interpreter_prefixes()]:
        # Create the parent folders here: those that bwrap creates can be read only by root.
        for parent in reversed(Path(folder).parents[:-1]):
            args += ["--perms", "0755", "--dir", str(parent)]
    for name in ("/usr", *interpreter_prefixes()):
        args += ["--ro-bind", name, name]
    for name, relocated in covered_prefixes():
        args += ["--perms", "0755", "--dir", relocated, "--ro-bind", name, relocated]
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
    guest = f"{CODE}/palestra/tools/sandbox/guest"
    parents = [
        arg for parent in reversed(Path(guest).parents[:-1]) for arg in ("--perms", "0755", "--dir", str(parent))
    ]
    return [*parents, "--ro-bind", str(Path(__file__).parent / "guest"), guest]


def data_files() -> dict[str, bytes]:
    """Return the content of small files to create in the sandbox in place of the host's files, by path."""
    packages = [f"{CODE}/palestra/{name}__init__.py" for name in ("", "tools/", "tools/sandbox/")]
    return {
        **dict.fromkeys(packages, b""),
        "/etc/passwd": b"root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:sandbox:/tmp:/bin/sh\n",
        "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
        "/etc/hosts": b"127.0.0.1 localhost sandbox\n",
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    }

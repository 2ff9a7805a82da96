"""Find a memory control group in which the sandbox may create groups for its programs."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from palestra.tools.sandbox.guest.groups import MEMORY_LIMITS

_numbers = itertools.count()


class MemoryGroup:
    """A control group for one template's programs; `close` removes it.

    Groups are used if this process may create them: as root with cgroup v1 or v2, or in a subtree of cgroup v2 that was
    delegated to the user (for example by systemd). Otherwise, `handle` is None, and only the template measures memory.
    """

    def __init__(self) -> None:
        self.handle: int | None = None  # descriptor of the directory
        self.path: Path | None = None
        self.version_2 = False
        for parent in _candidates():
            _sweep(parent)
            path = parent / f"{_prefix()}{os.getpid()}-{next(_numbers)}"
            with contextlib.suppress(OSError):
                path.mkdir()
                if any((path / name).exists() for name in MEMORY_LIMITS):
                    self.version_2 = (path / "cgroup.subtree_control").exists()
                    if self.version_2:
                        (path / "cgroup.subtree_control").write_text("+memory")
                    self.handle, self.path = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY), path
                    return
            with contextlib.suppress(OSError):
                path.rmdir()

    def close_handle(self) -> None:
        """Close the descriptor, after it was passed to the template."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def close(self) -> None:
        """Remove the group. Its processes must have exited."""
        self.close_handle()
        if self.path is not None:
            _remove(self.path)
            self.path = None


def _candidates() -> list[Path]:
    """Return the groups in which a group with a memory limit may be created: this process's own, then its parent."""
    paths: list[Path] = []
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for mount in mounts:
        _, folder, kind, options, *_ = mount.split()
        for group in groups:
            _, controllers, path = group.split(":", 2)
            version_1 = kind == "cgroup" and "memory" in options.split(",") and "memory" in controllers.split(",")
            if version_1 or (kind == "cgroup2" and not controllers):
                own = Path(folder + path)
                paths += [own] if version_1 or own == Path(folder) else [own, own.parent]
    return paths


def _prefix() -> str:
    """Return the start of group names. It identifies the pid namespace, because containers may share control groups."""
    return f"palestra-{Path('/proc/self/ns/pid').stat().st_ino}-"


def _sweep(parent: Path) -> None:
    """Remove groups that killed host processes left behind."""
    with contextlib.suppress(OSError):
        for path in parent.glob(f"{_prefix()}*"):
            pid = path.name.removeprefix(_prefix()).split("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for inner in path.iterdir():
            if inner.is_dir():
                inner.rmdir()
        path.rmdir()

"""Detect whether an episode depends on more than its seed (shared generators, the clock) or leaves resources open."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
from datetime import date, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Self

_CLOCKS = {
    getattr(time, name)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
}
_SHARED = random.random.__self__  # type: ignore[attr-defined]  # the generator behind random.random()
# The standard library may read the clock internally, for example for the timeout of a lock. Only these modules pass
# such values on to their caller.
_PASSES_ON = frozenset({"random", "secrets", "uuid", "datetime", "_pydatetime", "statistics"})

CLOSES_WITHIN = 1.0  # seconds


class SideEffectMonitor:
    """Context manager that collects calls that make an episode depend on more than its seed, with their location."""

    def __init__(self) -> None:
        self.side_effects: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._state = _shared_states()
        self._collects = gc.isenabled()
        gc.disable()  # garbage collection could run finalizers of unrelated code
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        if self._collects:
            gc.enable()
        for name, state in _shared_states().items():
            if name in self._state and state != self._state[name]:
                self.side_effects.setdefault(f"the process-wide generator of {name}", "somewhere in the episode")

    def _see(self, frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        kind = _kind(function)
        if kind is None:
            return
        caller = str(frame.f_globals.get("__name__", ""))
        module = caller.partition(".")[0]
        if caller.startswith("palestra.conformance."):
            return  # ignore calls from the conformance suite itself
        if module in sys.stdlib_module_names and module not in _PASSES_ON:
            return
        place: FrameType | None = frame
        while place is not None:
            name = str(place.f_globals.get("__name__", "")).partition(".")[0]
            if name not in sys.stdlib_module_names or name == "__main__":
                break
            place = place.f_back
        place = place or frame
        self.side_effects.setdefault(kind, f"{place.f_code.co_filename}:{place.f_lineno} ({place.f_code.co_qualname})")


def _kind(function: Any) -> str | None:
    owner = getattr(function, "__self__", None)
    if owner is _SHARED:
        return "the process-wide generator of random"
    if owner is time and function in _CLOCKS:
        return "the clock"
    if owner is datetime or owner is date:
        return "the clock" if function.__name__ in ("now", "utcnow", "today") else None
    if function is os.urandom:
        return "the operating system's randomness"
    return None


def _shared_states() -> dict[str, str]:
    states = {"random": repr(hash(random.getstate()))}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy.random"] = repr((name, hash(keys.tobytes()), rest))
    return states


class OpenResources(dict[str, set[str]]):
    """Threads, open files and child processes of this process."""

    @classmethod
    def now(cls) -> OpenResources:
        gc.collect()
        held = cls(threads={f"{thread.name} ({thread.ident})" for thread in threading.enumerate()})
        descriptors = Path("/proc/self/fd")
        if descriptors.is_dir():
            held["files"] = {link for link in map(_target, descriptors.iterdir()) if link is not None}
            held["processes"] = {
                child for task in Path("/proc/self/task").iterdir() for child in _read(task / "children").split()
            }
        return held

    @classmethod
    def left_since(cls, before: OpenResources) -> dict[str, set[str]]:
        """Return what was opened since `before` and is still open after `CLOSES_WITHIN`.

        A background thread that all envs share, for example, may be reading a file at any moment.
        """
        left = cls.now()._without(before)
        deadline = time.monotonic() + CLOSES_WITHIN
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            now = cls.now()
            left = {kind: found for kind, things in left.items() if (found := things & now.get(kind, set()))}
        return left

    def _without(self, before: OpenResources) -> dict[str, set[str]]:
        grown = {kind: things - before.get(kind, set()) for kind, things in self.items()}
        return {kind: things for kind, things in grown.items() if things}


def _target(descriptor: Path) -> str | None:
    try:
        return f"{descriptor.name} -> {descriptor.readlink()}"
    except OSError:
        return None  # the descriptor of the directory listing itself is already closed


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the thread or process ended in the meantime

"""Show the phases of a command in a terminal: with rich if it is installed, otherwise as lines."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from textwrap import wrap
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TextIO

from palestra import progress
from palestra.progress import clock

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 60.0  # time between two lines about a phase
ESTIMATED_FROM = (
    0.1  # finished fraction from which a line states the time left; episodes that run side by side end late
)


@contextmanager
def phases_shown(stream: TextIO | None = None) -> Iterator[None]:
    """Show the phases that run in the block on `stream` (default: standard error), if it is a terminal."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    draws = os.environ.get("TERM") != "dumb" and find_spec("rich") is not None
    with progress.displayed(Bars(stream) if draws else Lines(stream)):
        yield


@contextmanager
def line_shown(text: str, stream: TextIO | None = None) -> Iterator[None]:
    """Show `text` on `stream` (default: standard error) while the block runs, if it is a terminal.

    Unlike a phase, this does not import rich, which takes longer than many commands.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    line = f"{text} ..."
    stream.write(line)
    stream.flush()
    try:
        yield
    finally:
        stream.write(f"\r{' ' * len(line)}\r")  # works without escape sequences, too
        stream.flush()


def line_width(stream: TextIO | None = None) -> int | None:
    """Return the number of characters per line on `stream` (default: standard output), or None if not a terminal."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def fitted(text: str, *, indent: int | None = None, stream: TextIO | None = None) -> str:
    """Wrap lines that are longer than the terminal at spaces; return other output unchanged.

    Added lines are indented by `indent` spaces (default: two more than the wrapped line, if that is indented).
    `stream` is where the text will be printed (default: standard output).
    """
    width = line_width(stream)
    if width is None:
        return text
    width = max(20, width)
    lines = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
        else:
            start = len(line) - len(line.lstrip())
            added = min(width // 2, (start + 2 if start else 0) if indent is None else indent)
            lines += wrap(line, width, subsequent_indent=" " * added, break_on_hyphens=False)
    return "\n".join(lines)


@dataclass(slots=True)
class _Running:
    """A phase that is printed as lines."""

    name: str
    detail: str  # replaces the text in other displays, such as a success rate
    total: int | None
    begun: float
    printed: float

    def text(self, done: int, now: float) -> str:
        used = now - self.begun
        parts = [f"{done:,}", *([self.detail] if self.detail else []), clock(used)]
        if self.total:
            parts[0] += f" of {self.total:,} ({done / self.total:.0%})"
            if ESTIMATED_FROM <= done / self.total <= 1:
                parts.append(f"about {clock(used / done * (self.total - done))} left")
        return f"{self.name}: {', '.join(parts)}"


class Lines:
    """Prints a line when a phase begins, and one per minute while it counts its units.

    With `begin`, only some beginnings are printed: with "first", those of phases that have not run before, since many
    repeat in every step; with "none", none.
    """

    def __init__(self, stream: TextIO, *, begin: Literal["all", "first", "none"] = "all") -> None:
        self._stream = stream
        self._begin = begin
        self._begun: set[str] = set()
        self._running: dict[int, _Running] = {}
        self._keys = count()

    def begin(self, text: str, total: int | None) -> int:
        if self._begin == "all" or (self._begin == "first" and text not in self._begun):
            self._begun.add(text)
            self._print(f"{text} ...")
        key, now = next(self._keys), monotonic()
        self._running[key] = _Running(text, "", total, now, now)
        return key

    def update(self, key: int, done: int, text: str | None) -> None:
        running = self._running.get(key)
        if running is None:
            return
        running.detail = text or running.detail
        now = monotonic()
        if now - running.printed >= LINE_SECONDS:
            running.printed = now
            self._print(running.text(done, now))

    def end(self, key: int) -> None:
        self._running.pop(key, None)

    def _print(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class Bars:
    """Shows a spinner or a progress bar per phase, and removes it when the phase ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._bars: Progress | None = None  # None while no phase is running

    def begin(self, text: str, total: int | None) -> Any:
        with self._lock:
            if self._bars is None:
                with line_shown(text, self._stream):
                    self._bars = _progress(self._stream)
                self._bars.start()
            return self._bars.add_task(text, total=total)

    def update(self, key: Any, done: int, text: str | None) -> None:
        bars = self._bars
        if bars is not None:
            bars.update(key, completed=done, description=text)

    def end(self, key: Any) -> None:
        with self._lock:
            bars = self._bars
            if bars is not None:
                bars.remove_task(key)
                if not bars.tasks:
                    bars.stop()
                    self._bars = None


def _progress(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Bar(BarColumn):
        """Progress bar; empty if the number of units is unknown."""

        def render(self, task: Task) -> Any:
            return Text("") if task.total is None else super().render(task)

    class Count(TextColumn):
        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text(f"{task.completed:,.0f}" if task.completed else "")
            return Text(f"{task.completed:,.0f}/{task.total:,.0f}")

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        Bar(bar_width=20),
        Count(""),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )

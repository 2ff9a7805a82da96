"""Report the phases of long operations. They are displayed only if a display is set, as the command line does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Display(Protocol):
    """Shows which phases are running. The methods may be called from any thread."""

    def begin(self, text: str, total: int | None) -> Any:
        """Show a phase and return a key for it; `total` is its number of units, if it is known."""

    def update(self, key: Any, done: int, text: str | None) -> None:
        """Show how many units of a phase are finished, and replace its text if it is not None."""

    def end(self, key: Any) -> None:
        """Remove a phase."""


_displays: list[Display] = []


@contextmanager
def displayed(display: Display) -> Iterator[None]:
    """Show the phases of this process on `display` until the block ends."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)


class Phase:
    """A part of a long operation, which is displayed from its creation until `end`."""

    def __init__(self, text: str, total: int | None = None) -> None:
        self._display = _displays[-1] if _displays else None
        self._key = None if self._display is None else self._display.begin(text, total)
        self.done = 0

    @property
    def displayed(self) -> bool:
        return self._display is not None

    def update(self, done: int, text: str | None = None) -> None:
        """Set the number of finished units and, if it is not None, the text."""
        self.done = done
        if self._display is not None:
            self._display.update(self._key, done, text)

    def count(self, _: object = None) -> None:
        """Add one finished unit; can be passed as `on_trajectory`."""
        self.update(self.done + 1)

    def end(self) -> None:
        """Stop displaying the phase. Idempotent."""
        display, self._display = self._display, None
        if display is not None:
            display.end(self._key)


@contextmanager
def phase(text: str, total: int | None = None) -> Iterator[Phase]:
    """Display `text` while the block runs; `total` is the number of units that are counted, if it is known."""
    shown = Phase(text, total)
    try:
        yield shown
    finally:
        shown.end()


def counted(items: Iterable[T], phase: Phase, *, every: int = 1000) -> Iterator[T]:
    """Yield the items, and display the number of items so far after every `every` items."""
    for number, item in enumerate(items, 1):
        if number % every == 0:
            phase.update(number)
        yield item


def clock(seconds: float) -> str:
    """Format seconds as M:SS, or as H:MM:SS from one hour on."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"

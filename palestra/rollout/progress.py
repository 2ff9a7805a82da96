"""Report progress: a live status line or bar in a terminal, or one line every ten seconds in a log file."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TextIO

from palestra.progress import Phase
from palestra.rollout.types import Trajectory

LIVE_EVERY, LOG_EVERY = 0.1, 10.0  # seconds


class Progress:
    """Writes the numbers of episodes and failures, success rate and tokens per second to `stream` (default: stderr)."""

    def __init__(self, total: int, stream: TextIO | None = None, label: str = "") -> None:
        self.total = total
        self.stream = stream or sys.stderr
        self.label = f"{label} " if label else ""
        self.live = self.stream.isatty()
        self.started = monotonic()
        self.shown = self.started if not self.live else 0.0
        self.finished = self.solved = self.failed = self.tokens = 0
        self._width = 0
        self._phase = Phase("playing episodes", total)  # displayed only by the command line
        if self.live:
            self._write(last=False)

    def update(self, trajectory: Trajectory) -> None:
        if trajectory.failure is not None:
            self.failed += 1
        else:
            self.finished += 1
            self.solved += bool(trajectory.success)
        self.tokens += trajectory.sampled_tokens
        now = monotonic()
        if now - self.shown >= (LIVE_EVERY if self.live else LOG_EVERY):
            self.shown = now
            self._write(last=False)

    def close(self) -> None:
        """Write the final status line, followed by a newline."""
        self._phase.end()
        self._write(last=True)

    def text(self) -> str:
        return f"{self.label}{self.finished + self.failed}/{self.total} episodes, {self._rates()}"

    def _rates(self) -> str:
        seconds = max(monotonic() - self.started, 1e-9)
        parts = []
        if self.finished:
            parts.append(f"success {self.solved / self.finished:.1%}")
        if self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tokens/s")
        parts.append(f"{self.finished / seconds:,.1f} episodes/s")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)

    def _write(self, *, last: bool) -> None:
        if self.live and self._phase.displayed:
            done = self.finished + self.failed
            self._phase.update(done, self._rates() if done else None)
            return
        text = self.text()
        if self.live:
            self.stream.write(f"\r{text:<{self._width}}" + ("\n" if last else ""))
            self._width = len(text)
        else:
            self.stream.write(f"{text}\n")
        self.stream.flush()

"""What a run says about itself: a JSON line a step, TensorBoard where asked, a line for the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palestra.errors import StoreFailed
from palestra.optional import require

BARS = "▁▂▃▄▅▆▇█"


class Metrics:
    """Appends to `metrics.jsonl` of a run; on resume, lines of steps that will be played again are dropped."""

    def __init__(self, folder: Path, *, tensorboard: bool = False, from_step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self.rows = [row for row in read(self.path) if row["step"] < from_step]
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)
        self._board: Any = None
        if tensorboard:
            self._board = require("torch.utils.tensorboard", extra="train").SummaryWriter(str(folder / "tensorboard"))

    def add(self, row: Mapping[str, Any]) -> None:
        """One step's figures."""
        self.rows.append(dict(row))
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise StoreFailed(f"{self.path} could not be written: {err}") from err
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    self._board.add_scalar(name, value, row["step"])

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None


def read(path: Path) -> list[dict[str, Any]]:
    """The full lines of a metrics file; none where there is no file."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break  # the half line of a crash
    return rows


def sparkline(values: list[float], width: int = 30) -> str:
    """The last `width` values between 0 and 1 as a row of bars."""
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, value) * len(BARS)))] for value in values[-width:])

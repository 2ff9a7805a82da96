"""Render the whole grid as text or as a PNG image."""

from __future__ import annotations

import io
from typing import Any

from palestra.envs.babyai.level import Level
from palestra.optional import require

_AGENT = (">>", "vv", "<<", "^^")
_SYMBOLS = {"key": "k", "ball": "o", "box": "b"}
_COLORS = {"red": "r", "green": "g", "blue": "b", "purple": "p", "yellow": "y", "grey": "-"}


def as_text(level: Level) -> str:
    """Return the grid as text, two characters per cell.

    The first character is the object's symbol, and the second is the first letter of its color ("-" for grey). The
    agent is shown as a double arrow.
    """
    lines = []
    for y in range(level.height):
        line = []
        for x in range(level.width):
            cell = level.cells[y * level.width + x]
            if (x, y) == level.pos:
                line.append(_AGENT[level.facing])
            elif cell is None:
                line.append("..")
            elif cell.type == "wall":
                line.append("##")
            elif cell.type == "door":
                line.append(("_" if cell.is_open else "L" if cell.is_locked else "D") + _COLORS[cell.color])
            else:
                line.append(_SYMBOLS[cell.type] + _COLORS[cell.color])
        lines.append("".join(line))
    return "\n".join(lines)


def as_png(level: Level, *, tile: int = 32) -> bytes:
    """Return minigrid's image of the level, with the cells in the agent's view highlighted."""
    image: Any = require("PIL.Image", extra="babyai")
    png = io.BytesIO()
    image.fromarray(level.engine.get_frame(True, tile)).save(png, "PNG")
    return png.getvalue()

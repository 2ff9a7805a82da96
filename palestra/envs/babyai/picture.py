"""A world -> the whole grid as text or as a PNG picture, for people who watch."""

from __future__ import annotations

import struct
import zlib

from palestra.envs.babyai.engine import World

_AGENT = (">>", "vv", "<<", "^^")
_SIGNS = {"key": "k", "ball": "o", "box": "b"}
_COLORS = {"red": "r", "green": "g", "blue": "b", "purple": "p", "yellow": "y", "grey": "-"}


def as_text(world: World) -> str:
    """Two signs a cell: the map's sign and the colour's first letter (grey: -); the agent points where it looks."""
    lines = []
    for y in range(world.height):
        line = []
        for x in range(world.width):
            cell = world.cells[y * world.width + x]
            if (x, y) == world.pos:
                line.append(_AGENT[world.facing])
            elif cell is None:
                line.append("..")
            elif cell.type == "wall":
                line.append("##")
            elif cell.type == "door":
                line.append(("_" if cell.is_open else "L" if cell.is_locked else "D") + _COLORS[cell.color])
            else:
                line.append(_SIGNS[cell.type] + _COLORS[cell.color])
        lines.append("".join(line))
    return "\n".join(lines)


def as_png(world: World, *, tile: int = 32) -> bytes:
    """minigrid's picture, what is in view lit up."""
    pixels = world.engine.get_frame(True, tile)
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, red green blue
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

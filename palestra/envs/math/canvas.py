"""A small canvas: smooth lines, arcs, shaded areas and a bitmap font in shades of grey, out as a PNG."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, cos, floor, hypot, radians, sin
from struct import pack

Point = tuple[float, float]
Box = tuple[int, int, int, int]  # left, top, right, bottom

WHITE, SHADE = 255, 208
GLYPH_WIDTH, GLYPH_HEIGHT = 5, 7

# A glyph is seven rows of five bits, the left one highest.
_FONT = {
    "0": "0e1113151911 0e", "1": "040c04040404 0e", "2": "0e110102040 81f", "3": "1f020402011 10e",
    "4": "02060a121f02 02", "5": "1f101e010111 0e", "6": "0608101e1111 0e", "7": "1f0102040808 08",
    "8": "0e11110e1111 0e", "9": "0e11110f0102 0c", "A": "0e11111f1111 11", "B": "1e11111e1111 1e",
    "C": "0e1110101011 0e", "D": "1c1211111112 1c", "E": "1f10101e1010 1f", "F": "1f10101e1010 10",
    "G": "0e1110171111 0f", "H": "1111111f1111 11", "K": "111214181412 11", "L": "101010101010 1f",
    "M": "111b15151111 11", "N": "111119151311 11", "O": "0e1111111111 0e", "P": "1e11111e1010 10",
    "Q": "0e1111111512 0d", "R": "1e11111e1412 11", "S": "0f10100e0101 1e", "T": "1f0404040404 04",
    "U": "111111111111 0e", "V": "111111111 10a04", "W": "11111115151 50a", "X": "11110a040a11 11",
    "Y": "1111110a0404 04", "Z": "1f0102040810 1f", "c": "00000e101011 0e", "m": "00001a151511 11",
    "?": "0e1101020400 04", "°": "0c12120c0000 00", ".": "0000000000 0c0c", "k": "10101214181412",
    "i": "04000c040404 0e", "n": "000016191111 11", "/": "000102040810 00", " ": "00000000000000",
}  # fmt: skip
GLYPHS = {char: bytes.fromhex(rows.replace(" ", "")) for char, rows in _FONT.items()}


def text_size(text: str, scale: int) -> tuple[int, int]:
    return (len(text) * (GLYPH_WIDTH + 1) - 1) * scale, GLYPH_HEIGHT * scale


class Canvas:
    """Rows of grey values from the top; drawing only darkens, so that strokes may cross."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.pixels = bytearray([WHITE]) * (width * height)

    def line(self, start: Point, end: Point, *, thickness: float = 2.0, dash: float = 0.0) -> None:
        """A stroke; with `dash`, in pieces of that length."""
        (x0, y0), (x1, y1) = start, end
        length = hypot(x1 - x0, y1 - y0)
        if dash and length > dash:
            pieces = max(1, round(length / dash)) // 2 * 2 + 1  # odd: it begins and ends with a stroke
            for i in range(0, pieces, 2):
                a, b = i / pieces, (i + 1) / pieces
                self.line(
                    (x0 + (x1 - x0) * a, y0 + (y1 - y0) * a),
                    (x0 + (x1 - x0) * b, y0 + (y1 - y0) * b),
                    thickness=thickness,
                )
            return
        steep = abs(y1 - y0) > abs(x1 - x0)
        if steep:
            x0, y0, x1, y1 = y0, x0, y1, x1
        if x0 > x1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
        flat = 1 / hypot(1, slope)  # turns a distance along an axis into one across the stroke
        reach = (thickness / 2 + 0.5) / flat
        across = self.height if not steep else self.width
        along = self.width if not steep else self.height
        pixels, width = self.pixels, self.width
        full = thickness / 2 - 0.5  # so near to the middle it is all black
        per_x, per_y = (width, 1) if steep else (1, width)
        for x in range(max(0, round(x0)), min(along - 1, round(x1)) + 1):
            middle = y0 + (x - x0) * slope
            first, last = ceil(middle - reach), floor(middle + reach)
            if first < 0 or last >= across:
                continue
            for y in range(first, last + 1):
                off = (y - middle if y > middle else middle - y) * flat - full
                grey = int(WHITE * off) if off > 0 else 0
                at = x * per_x + y * per_y
                if grey < pixels[at]:
                    pixels[at] = grey

    def arc(self, centre: Point, radius: float, start: float = 0.0, end: float = 360.0, thickness: float = 2.0) -> None:
        """Part of a circle, from `start` to `end` degrees, counted from the right towards the bottom."""
        pieces = max(4, int(abs(end - start) / 360 * max(24.0, radius / 2)))
        angles = [radians(start + (end - start) * i / pieces) for i in range(pieces + 1)]
        points = [(centre[0] + radius * cos(a), centre[1] + radius * sin(a)) for a in angles]
        for a, b in pairwise(points):
            self.line(a, b, thickness=thickness)

    def shade(self, outline: Sequence[Point], grey: int = SHADE) -> None:
        """Fill a polygon: darker where `grey` is, white to cut a hole."""
        edges = list(zip(outline, [*outline[1:], outline[0]], strict=True))
        top, bottom = min(y for _, y in outline), max(y for _, y in outline)
        for row in range(max(0, ceil(top)), min(self.height - 1, floor(bottom)) + 1):
            crossings = sorted(
                x0 + (row - y0) * (x1 - x0) / (y1 - y0)
                for (x0, y0), (x1, y1) in edges
                if min(y0, y1) <= row < max(y0, y1)
            )
            for left, right in zip(crossings[::2], crossings[1::2], strict=False):
                a, b = max(0, ceil(left)), min(self.width, floor(right) + 1)
                if b > a:
                    self.pixels[row * self.width + a : row * self.width + b] = bytes([grey]) * (b - a)

    def text(self, left: int, top: int, text: str, *, scale: int) -> None:
        """Letters on a ground of their own, so that lines behind them do not hide them."""
        wide, high = text_size(text, scale)
        self._block(left - scale, top - scale, wide + 2 * scale, high + 2 * scale, WHITE)
        for i, char in enumerate(text):
            for row, bits in enumerate(GLYPHS[char]):
                for column in range(GLYPH_WIDTH):
                    if bits >> (GLYPH_WIDTH - 1 - column) & 1:
                        x = left + (i * (GLYPH_WIDTH + 1) + column) * scale
                        self._block(x, top + row * scale, scale, scale, 0)

    def _block(self, left: int, top: int, wide: int, high: int, grey: int) -> None:
        a, b = max(0, left), min(self.width, left + wide)
        if b <= a:
            return
        for row in range(max(0, top), min(self.height, top + high)):
            self.pixels[row * self.width + a : row * self.width + b] = bytes([grey]) * (b - a)

    def darkness(self, box: Box) -> int:
        """How much is drawn inside `box`; what lies outside the canvas counts as fully drawn."""
        left, top, right, bottom = box
        if left < 0 or top < 0 or right > self.width or bottom > self.height:
            return WHITE * (right - left) * (bottom - top)
        step, pixels = self.width, self.pixels
        inside = b"".join([pixels[row + left : row + right] for row in range(top * step, bottom * step, step)])
        return WHITE * len(inside) - sum(inside)

    def png(self) -> bytes:
        """The picture, 8 bits of grey a pixel."""

        def chunk(kind: bytes, data: bytes) -> bytes:
            return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

        step = self.width
        rows = b"".join(b"\0" + self.pixels[i : i + step] for i in range(0, len(self.pixels), step))
        header = pack(">IIBBBBB", self.width, self.height, 8, 0, 0, 0, 0)
        return (
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")
        )

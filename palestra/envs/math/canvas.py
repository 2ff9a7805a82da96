"""Draw grayscale figures with Pillow: anti-aliased lines, filled polygons and text labels, encoded as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from math import hypot
from typing import TYPE_CHECKING

from palestra.optional import require

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

Point = tuple[float, float]
Box = tuple[int, int, int, int]  # left, top, right, bottom

WHITE, SHADE, BLACK = 255, 208, 0
FONT_SIZE = 20
_OVERSAMPLING = 3  # lines are drawn at this scale and then downsampled for anti-aliasing


class Canvas:
    """A grayscale image. Draw all lines and areas before the first call to `darkness` or `text`."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._large: Image = require("PIL.Image", extra="math").new(
            "L", (width * _OVERSAMPLING, height * _OVERSAMPLING), WHITE
        )
        self._pen = require("PIL.ImageDraw", extra="math").Draw(self._large)
        self._image: Image | None = None

    def line(self, start: Point, end: Point, *, thickness: float = 2.0, dash: float = 0.0) -> None:
        """Draw a line; if `dash` is not 0, it is dashed, and `dash` is the approximate length of a dash."""
        (x0, y0), (x1, y1) = start, end
        length = hypot(x1 - x0, y1 - y0)
        if dash and length > dash:
            pieces = max(1, round(length / dash)) // 2 * 2 + 1  # odd, so that the line starts and ends with a dash
            for i in range(0, pieces, 2):
                a, b = i / pieces, (i + 1) / pieces
                self.line(
                    (x0 + (x1 - x0) * a, y0 + (y1 - y0) * a),
                    (x0 + (x1 - x0) * b, y0 + (y1 - y0) * b),
                    thickness=thickness,
                )
            return
        width = round(thickness * _OVERSAMPLING)
        ends = [_enlarged(start), _enlarged(end)]
        self._pen.line(ends, fill=BLACK, width=width)
        for x, y in ends:  # round caps close the gaps where lines meet at an angle
            self._pen.circle((x, y), (width - 1) / 2, fill=BLACK)

    def arc(
        self, centre: Point, radius: float, start: float = 0.0, end: float = 360.0, *, thickness: float = 2.0
    ) -> None:
        """Draw an arc of a circle from `start` to `end`, in degrees clockwise from the positive x axis."""
        x, y = _enlarged(centre)
        reach = (radius + thickness / 2) * _OVERSAMPLING  # Pillow draws the line inside this box
        box = (x - reach, y - reach, x + reach, y + reach)
        self._pen.arc(box, min(start, end), max(start, end), fill=BLACK, width=round(thickness * _OVERSAMPLING))

    def fill(self, outline: Sequence[Point], grey: int = SHADE) -> None:
        """Fill a polygon."""
        self._pen.polygon([_enlarged(point) for point in outline], fill=grey)

    @property
    def image(self) -> Image:
        if self._image is None:
            self._image = self._large.reduce(_OVERSAMPLING)
        return self._image

    def darkness(self, box: Box) -> int:
        """Return the total darkness of the pixels in `box`; a box that extends beyond the canvas counts as black."""
        left, top, right, bottom = box
        area = (right - left) * (bottom - top)
        if left < 0 or top < 0 or right > self.width or bottom > self.height:
            return WHITE * area
        return WHITE * area - sum(self.image.crop(box).tobytes())

    def text(self, left: int, top: int, text: str) -> None:
        """Write text on a white background, so that it stays readable on top of lines."""
        self.image.paste(_rendered(text), (left, top))

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self.image.save(buffer, format="PNG")
        return buffer.getvalue()


def text_size(text: str) -> tuple[int, int]:
    """Return the width and height of a text drawn by `Canvas.text`, in pixels."""
    return _rendered(text).size


def _enlarged(point: Point) -> Point:
    # The center of pixel (0, 0) of the downsampled image is at (1, 1) in the large image.
    shift = (_OVERSAMPLING - 1) / 2
    return point[0] * _OVERSAMPLING + shift, point[1] * _OVERSAMPLING + shift


@lru_cache(maxsize=1)
def _font() -> FreeTypeFont:
    font: FreeTypeFont = require("PIL.ImageFont", extra="math").load_default(FONT_SIZE)
    return font


@lru_cache(maxsize=2048)
def _rendered(text: str) -> Image:
    """Return an image of the text, cropped to its glyphs."""
    font = _font()
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    image: Image = require("PIL.Image", extra="math").new("L", (right - left, bottom - top), WHITE)
    require("PIL.ImageDraw", extra="math").Draw(image).text((-left, -top), text, fill=BLACK, font=font)
    return image

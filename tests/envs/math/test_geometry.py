"""Figures are what they are said to be: measured in coordinates, and read back from the picture."""

from __future__ import annotations

import io
from math import atan2, degrees, hypot, pi
from random import Random
from typing import Any

import pytest
from PIL import Image

import palestra
from palestra.envs.math.canvas import GLYPH_HEIGHT, GLYPH_WIDTH, GLYPHS, Canvas
from palestra.envs.math.exact import shown
from palestra.envs.math.figures import SCALE, Figure, Measure, drawn
from palestra.envs.math.geometry import Geometry
from palestra.envs.math.geometry_kinds import KINDS
from palestra.errors import BadValue
from palestra.types import text_of


def area(points: list[tuple[float, float]]) -> float:
    pairs = zip(points, [*points[1:], points[0]], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)) / 2


def measured(figure: Figure, measure: Measure) -> float:
    """A measure taken with ruler and protractor."""
    if measure.kind == "difference":
        cut = measure.at.index("|")
        outer, inner = measure.at[:cut], measure.at[cut + 1 :]
        return area([figure.points[n] for n in outer]) - area([figure.points[n] for n in inner])
    at = [figure.points[name] for name in measure.at]
    far = hypot(at[0][0] - at[1][0], at[0][1] - at[1][1])
    if measure.kind == "length":
        return far
    if measure.kind == "area":
        return area(at)
    if measure.kind == "perimeter":
        return sum(hypot(a[0] - b[0], a[1] - b[1]) for a, b in zip(at, [*at[1:], at[0]], strict=True))
    if measure.kind == "circle":
        return far**2
    if measure.kind == "round":
        return 2 * far
    a, vertex, b = at
    turn = atan2(a[1] - vertex[1], a[0] - vertex[0]) - atan2(b[1] - vertex[1], b[0] - vertex[0])
    angle = abs((degrees(turn) + 180) % 360 - 180)
    if measure.kind == "angle":
        return angle
    assert measure.kind in ("sector", "arc")
    return angle / 360 * far**2 if measure.kind == "sector" else angle / 180 * far


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_to_scale(kind: str) -> None:
    for seed in range(60):
        for size in (12, 60, 500):
            figure = KINDS[kind](Random(seed), size)
            for measure in (*figure.given, figure.asked):
                assert measured(figure, measure) == pytest.approx(float(measure.value), rel=1e-6), (seed, size, measure)
            assert figure.asked.value > 0
            for a, vertex, b in figure.right:
                right = Measure(kind="angle", at=(a, vertex, b), value=90)
                assert measured(figure, right) == pytest.approx(90)


def read(png: bytes) -> list[str]:
    """The texts in a picture, found by comparing every place with the font, without the drawing's own plan."""
    image = Image.open(io.BytesIO(png))
    assert image.mode == "L"
    pixels: Any = image.load()
    wide, high = image.size
    shapes = {rows: char for char, rows in GLYPHS.items() if any(rows)}
    found: dict[tuple[int, int], str] = {}
    tall, broad = GLYPH_HEIGHT * SCALE, GLYPH_WIDTH * SCALE
    for top in range(high - tall):
        for left in range(wide - broad):
            rows: list[int] = []
            for row in range(GLYPH_HEIGHT):
                y = top + row * SCALE
                bits = 0
                for column in range(GLYPH_WIDTH):
                    x = left + column * SCALE
                    dark = pixels[x, y]
                    if dark not in (0, 255):
                        break
                    bits = bits << 1 | (dark == 0)
                else:
                    if bits or rows:  # what is looked for begins in its first row
                        rows.append(bits)
                        continue
                break
            char = shapes.get(bytes(rows)) if len(rows) == GLYPH_HEIGHT else None
            if char is not None and _clear(pixels, left, top, bytes(rows)):
                found[left, top] = char
    return _joined(found)


def _clear(pixels: Any, left: int, top: int, rows: bytes) -> bool:
    for y in range(GLYPH_HEIGHT * SCALE):
        for x in range(GLYPH_WIDTH * SCALE):
            wanted = 0 if rows[y // SCALE] >> (GLYPH_WIDTH - 1 - x // SCALE) & 1 else 255
            if pixels[left + x, top + y] != wanted:
                return False
    return True


def _joined(found: dict[tuple[int, int], str]) -> list[str]:
    step = (GLYPH_WIDTH + 1) * SCALE
    texts = []
    for (left, top), char in sorted(found.items()):
        if (left - step, top) in found:
            continue
        text = char
        while (left + step, top) in found:
            left += step
            text += found[left, top]
        texts.append(text)
    return texts


@pytest.mark.parametrize("kind", ["corner_shape", "chord", "exterior_angle"])
def test_what_is_needed_can_be_read_in_the_picture(kind: str) -> None:
    figure = KINDS[kind](Random(5), 90)
    texts = read(drawn(figure, Random(6)))
    for measure in figure.given:
        label = f"{shown(measure.value)}°" if measure.kind == "angle" else shown(measure.value)
        assert label in texts, (label, texts)
    for name in figure.points:
        assert name in texts
    assert read(drawn(figure, Random(6), labelled=False)) != texts


def test_the_observation_is_text_and_picture() -> None:
    env = palestra.make("math:Geometry-v0-hard")
    observation, _ = env.reset(seed=1)
    assert not isinstance(observation, str)
    kinds = [part["type"] for part in observation]
    assert kinds == ["text", "image", "text", "text"]
    assert env.step(str(env.expert_action())).reward == 1.0


def test_measures_in_the_text() -> None:
    for where in ("text", "both"):
        env = palestra.make("math:Geometry-v0-easy", measures=where, kinds=["right_triangle"])
        words = text_of(env.reset(seed=4)[0])
        assert "Given: " in words
    assert "Given: " not in text_of(palestra.make("math:Geometry-v0-easy").reset(seed=4)[0])
    with pytest.raises(BadValue, match="picture, text, both"):
        Geometry(measures="nowhere")


def test_lines_and_shades() -> None:
    canvas = Canvas(40, 30)
    canvas.shade([(5, 5), (30, 5), (30, 20), (5, 20)])
    canvas.line((0, 25), (39, 25))
    canvas.arc((20, 12), 6)
    image = Image.open(io.BytesIO(canvas.png()))
    pixels: Any = image.load()
    assert image.size == (40, 30)
    assert pixels[6, 6] == 208
    assert pixels[10, 25] == 0
    assert pixels[26, 12] < 60
    assert pixels[35, 10] == 255
    assert canvas.darkness((32, 0, 39, 20)) == 0 < canvas.darkness((-1, 0, 4, 4))
    assert 2 * pi * 6 < sum(grey < 128 for grey in image.tobytes()) < 400

"""Verify answers with the figures' coordinates, and search the picture for the labels."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from math import atan2, degrees, hypot, pi
from random import Random
from typing import Any

import pytest
from PIL import Image

import palestra
from palestra.envs.math.canvas import Canvas, _rendered, text_size
from palestra.envs.math.exact import format_number
from palestra.envs.math.figures import Figure, Measure, draw_figure
from palestra.envs.math.geometry import KINDS, Geometry
from palestra.errors import BadValue
from palestra.types import text_of


def area(points: list[tuple[float, float]]) -> float:
    pairs = zip(points, [*points[1:], points[0]], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)) / 2


def measured(figure: Figure, measure: Measure) -> float:
    """Compute a measure from the coordinates."""
    if measure.kind == "difference":
        cut = measure.at.index("|")
        outer, inner = measure.at[:cut], measure.at[cut + 1 :]
        return area([figure.points[n] for n in outer]) - area([figure.points[n] for n in inner])
    at = [figure.points[name] for name in measure.at]
    distance = hypot(at[0][0] - at[1][0], at[0][1] - at[1][1])
    if measure.kind == "length":
        return distance
    if measure.kind == "area":
        return area(at)
    if measure.kind == "perimeter":
        return sum(hypot(a[0] - b[0], a[1] - b[1]) for a, b in zip(at, [*at[1:], at[0]], strict=True))
    if measure.kind == "disc":
        return distance**2
    if measure.kind == "circumference":
        return 2 * distance
    a, vertex, b = at
    turn = atan2(a[1] - vertex[1], a[0] - vertex[0]) - atan2(b[1] - vertex[1], b[0] - vertex[0])
    angle = abs((degrees(turn) + 180) % 360 - 180)
    if measure.kind == "angle":
        return angle
    assert measure.kind in ("sector", "arc")
    return angle / 360 * distance**2 if measure.kind == "sector" else angle / 180 * distance


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_to_scale(kind: str) -> None:
    for seed in range(60):
        for size in (12, 60, 500):
            figure = KINDS[kind](Random(seed), size)
            for measure in (*figure.given, figure.target):
                assert measured(figure, measure) == pytest.approx(float(measure.value), rel=1e-6), (seed, size, measure)
            assert figure.target.value > 0
            for a, vertex, b in figure.right_angles:
                right = Measure(kind="angle", at=(a, vertex, b), value=90)
                assert measured(figure, right) == pytest.approx(90)


def contains_label(png: bytes, text: str) -> bool:
    """Return whether the picture contains an exact copy of a rendered label."""
    picture, label = Image.open(io.BytesIO(png)), _rendered(text)
    assert picture.mode == "L"
    pixels, stride, width = picture.tobytes(), picture.width, label.width
    rows = [label.tobytes()[start : start + width] for start in range(0, width * label.height, width)]
    at = pixels.find(rows[0])
    while at >= 0:
        if all(pixels[at + i * stride : at + i * stride + width] == row for i, row in enumerate(rows)):
            return True
        at = pixels.find(rows[0], at + 1)
    return False


@pytest.mark.parametrize("kind", ["corner_shape", "chord", "exterior_angle"])
def test_measures_and_names_are_in_the_picture(kind: str) -> None:
    figure = KINDS[kind](Random(5), 90)
    picture, unlabelled = draw_figure(figure, Random(6)), draw_figure(figure, Random(6), labelled=False)
    for measure in figure.given:
        number = format_number(measure.value)
        label = f"{number}°" if measure.kind == "angle" else number
        assert contains_label(picture, label), label
        assert not contains_label(unlabelled, label), label
    for name in figure.points:
        assert contains_label(picture, name)


def test_pictures_are_identical_in_other_processes() -> None:
    code = (
        "import hashlib, palestra\n"
        "env = palestra.make('math:Geometry-v0-hard')\n"
        "print(hashlib.sha256(repr([env.reset(seed=seed)[0] for seed in range(5)]).encode()).hexdigest())"
    )
    digests = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    env = palestra.make("math:Geometry-v0-hard")
    digests.add(hashlib.sha256(repr([env.reset(seed=seed)[0] for seed in range(5)]).encode()).hexdigest() + "\n")
    assert len(digests) == 1


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


def test_lines_arcs_and_areas() -> None:
    canvas = Canvas(40, 30)
    canvas.fill([(5, 5), (30, 5), (30, 20), (5, 20)])
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


def test_text_covers_what_is_behind_it() -> None:
    canvas = Canvas(60, 40)
    canvas.line((0, 20), (59, 20), thickness=4)
    canvas.text(20, 10, "42")
    width, height = text_size("42")
    assert canvas.image.crop((20, 10, 20 + width, 10 + height)).tobytes() == _rendered("42").tobytes()

"""Plane figures with given measures and one unknown measure, and functions that draw them as labeled images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan2, cos, degrees, hypot, pi, radians, sin
from random import Random

from palestra.envs.math.canvas import SHADE, WHITE, Box, Canvas, Point, text_size
from palestra.envs.math.exact import Number, format_number

WIDTH, HEIGHT, MARGIN = 420, 340, 46
_PADDING = 2  # pixels of empty space around a label

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A quantity defined by points of the figure.

    `kind` is one of:
        - "length" of the line between two points
        - "angle" at the second of three points
        - "area" or "perimeter" of the polygon through the points
        - "difference" between the areas of two polygons, which are separated by "|" in `at`
        - "disc" (area) or "circumference" of the circle given by its center and a point on the circle
        - "sector" (area) or "arc" (length), given by a point, the center and another point

    The values of the last four kinds are divided by pi.
    """

    kind: str
    at: Names
    value: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure drawn to scale: the coordinates in `points` agree with all measures."""

    kind: str
    points: Mapping[str, Point]
    lines: tuple[tuple[str, str], ...]
    target: Measure
    question: str  # the question without the given measures
    given: tuple[Measure, ...] = ()
    dashed: tuple[tuple[str, str], ...] = ()
    circles: tuple[tuple[str, str], ...] = ()  # center, and a point on the circle
    right_angles: tuple[Names, ...] = ()
    shaded: tuple[Names, ...] = ()
    holes: tuple[Names, ...] = ()
    hidden: frozenset[str] = frozenset()  # points whose names are not displayed


def describe_measures(figure: Figure, unit: str) -> str:
    """Return a sentence that states the given measures."""
    parts = []
    for measure in figure.given:
        if measure.kind == "angle":
            parts.append(f"angle {''.join(measure.at)} = {format_number(measure.value)}°")
        else:
            parts.append(f"{''.join(measure.at)} = {format_number(measure.value)} {unit}")
    return f"Given: {', '.join(parts)}."


def draw_figure(figure: Figure, rng: Random, *, labelled: bool = True) -> bytes:
    """Return a PNG image of the figure, randomly rotated and mirrored; with `labelled`, it shows the given measures."""
    canvas = Canvas(WIDTH, HEIGHT)
    position = _positions(figure, rng)
    for outline in figure.shaded:
        canvas.fill([position[name] for name in outline], SHADE)
    for outline in figure.holes:
        canvas.fill([position[name] for name in outline], WHITE)
    for centre, edge in figure.circles:
        canvas.arc(position[centre], _distance(position[centre], position[edge]))
    for a, b in figure.lines:
        canvas.line(position[a], position[b])
    for a, b in figure.dashed:
        canvas.line(position[a], position[b], thickness=1.5, dash=7)
    for names in figure.right_angles:
        _mark_right_angle(canvas, *(position[name] for name in names))
    middle = _mean([position[name] for name in figure.points])
    labels: list[tuple[str, list[Point]]] = []  # texts with their candidate positions, best first
    measures = [(measure, format_number(measure.value)) for measure in figure.given] if labelled else []
    measures.append((figure.target, "?"))
    for measure, text in measures:
        if measure.kind == "angle":
            number = text if text == "?" else f"{text}°"
            labels.append((number, _mark_angle(canvas, [position[name] for name in measure.at])))
    for measure, text in measures:
        if measure.kind == "length":
            start, end = (position[name] for name in measure.at)
            if any(_between(position[name], start, end) for name in position if name not in figure.hidden):
                start, end = _draw_dimension(canvas, start, end, middle)
            labels.append((text, _beside_line(start, end, text)))
    labels += [(name, _around_point(position[name], middle)) for name in figure.points if name not in figure.hidden]
    _place_labels(canvas, labels)
    return canvas.png()


def _positions(figure: Figure, rng: Random) -> dict[str, Point]:
    """Return the position of every point on the canvas after a random rotation, a random reflection, and scaling."""
    turn, mirror = rng.uniform(0, 2 * pi), rng.choice((-1, 1))
    extent = dict(figure.points)
    for centre, edge in figure.circles:  # a circle extends beyond its named points
        (x, y), radius = figure.points[centre], _distance(figure.points[centre], figure.points[edge])
        for i in range(16):
            extent[f"{centre}{i}"] = (x + radius * cos(i * pi / 8), y + radius * sin(i * pi / 8))
    turned = {
        name: (mirror * (x * cos(turn) - y * sin(turn)), x * sin(turn) + y * cos(turn))
        for name, (x, y) in extent.items()
    }
    left, right = min(x for x, _ in turned.values()), max(x for x, _ in turned.values())
    low, high = min(y for _, y in turned.values()), max(y for _, y in turned.values())
    scale = min((WIDTH - 2 * MARGIN) / (right - left or 1), (HEIGHT - 2 * MARGIN) / (high - low or 1))
    across, down = WIDTH / 2 - (left + right) / 2 * scale, HEIGHT / 2 + (low + high) / 2 * scale
    return {name: (across + turned[name][0] * scale, down - turned[name][1] * scale) for name in figure.points}


def _place_labels(canvas: Canvas, labels: list[tuple[str, list[Point]]]) -> None:
    """Write each label at the candidate position where it hides the fewest lines and overlaps no other label."""
    taken: list[Box] = []
    for text, spots in labels:
        width, height = text_size(text)
        best: tuple[float, Box] | None = None
        for rank, (x, y) in enumerate(spots):
            if best is not None and best[0] <= 40.0 * rank:
                break  # no later position can have a lower cost
            left, top = round(x - width / 2), round(y - height / 2)
            box = (left - _PADDING, top - _PADDING, left + width + _PADDING, top + height + _PADDING)
            cost = canvas.darkness(box) + 40.0 * rank
            if any(_overlap(box, other) for other in taken):
                cost += 1e9
            if best is None or cost < best[0]:
                best = (cost, box)
        assert best is not None  # noqa: S101  # there is at least one position
        box = best[1]
        taken.append(box)
        canvas.text(box[0] + _PADDING, box[1] + _PADDING, text)


def _beside_line(a: Point, b: Point, text: str) -> list[Point]:
    """Return candidate positions for a label next to the midpoint of a line."""
    width, height = text_size(text)
    length = _distance(a, b) or 1
    normal = (-(b[1] - a[1]) / length, (b[0] - a[0]) / length)
    reach = (abs(normal[0]) * width + abs(normal[1]) * height) / 2
    spots = []
    for share in (0.5, 0.42, 0.58, 0.33, 0.67):
        x, y = a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
        for gap in (6, 11):
            for side in (1, -1):
                away = side * (reach + gap)
                spots.append((x + normal[0] * away, y + normal[1] * away))
    return spots


def _mark_angle(canvas: Canvas, at: list[Point]) -> list[Point]:
    """Draw an arc at the vertex of an angle; return candidate positions for its label."""
    a, vertex, b = at
    start = degrees(atan2(a[1] - vertex[1], a[0] - vertex[0]))
    width = (degrees(atan2(b[1] - vertex[1], b[0] - vertex[0])) - start + 180) % 360 - 180
    radius = min(24.0, 0.35 * min(_distance(a, vertex), _distance(b, vertex)))
    canvas.arc(vertex, radius, start, start + width, thickness=1.5)
    middle = radians(start + width / 2)
    return [
        (vertex[0] + cos(middle + aside) * away, vertex[1] + sin(middle + aside) * away)
        for away in (radius + 18, radius + 26, radius + 36, radius + 48, radius + 62)
        for aside in (0.0, 0.12, -0.12)
    ]


def _around_point(point: Point, middle: Point) -> list[Point]:
    """Return candidate positions for the name of a point, starting on the side away from the figure's center."""
    out = atan2(point[1] - middle[1], point[0] - middle[0])
    return [
        (point[0] + cos(out + aside) * away, point[1] + sin(out + aside) * away)
        for away in (15, 19)
        for aside in (0.0, 0.5, -0.5, 1.0, -1.0, 1.6, -1.6, 2.4, -2.4, 3.1)
    ]


def _draw_dimension(canvas: Canvas, a: Point, b: Point, middle: Point) -> tuple[Point, Point]:
    """Draw a dimension line for a side that contains another point, so that its label refers to the whole side."""
    length = _distance(a, b) or 1
    across = (-(b[1] - a[1]) / length, (b[0] - a[0]) / length)
    outside = -1 if across[0] * (middle[0] - a[0]) + across[1] * (middle[1] - a[1]) > 0 else 1
    x, y = across[0] * outside, across[1] * outside
    for end in (a, b):
        canvas.line((end[0] + x * 8, end[1] + y * 8), (end[0] + x * 18, end[1] + y * 18), thickness=1.0)
    ends = (a[0] + x * 13, a[1] + y * 13), (b[0] + x * 13, b[1] + y * 13)
    canvas.line(*ends, thickness=1.0)
    return ends


def _between(point: Point, a: Point, b: Point) -> bool:
    """Return whether a point is on the line between `a` and `b`, but not at an end."""
    first, second = _distance(a, point), _distance(point, b)
    return min(first, second) > 1 and first + second - _distance(a, b) < 0.01


def _mark_right_angle(canvas: Canvas, a: Point, vertex: Point, b: Point) -> None:
    side = min(13.0, 0.3 * min(_distance(a, vertex), _distance(b, vertex)))
    along = [_towards(vertex, end, side) for end in (a, b)]
    corner = (along[0][0] + along[1][0] - vertex[0], along[0][1] + along[1][1] - vertex[1])
    canvas.line(along[0], corner, thickness=1.5)
    canvas.line(corner, along[1], thickness=1.5)


def _towards(start: Point, end: Point, length: float) -> Point:
    whole = _distance(start, end) or 1
    return start[0] + (end[0] - start[0]) * length / whole, start[1] + (end[1] - start[1]) * length / whole


def _distance(a: Point, b: Point) -> float:
    return hypot(a[0] - b[0], a[1] - b[1])


def _mean(points: list[Point]) -> Point:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

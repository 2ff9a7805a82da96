"""A figure in the plane, with what is known and asked of it -> a labelled drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan2, cos, degrees, hypot, pi, radians, sin
from random import Random

from palestra.envs.math.canvas import SHADE, WHITE, Box, Canvas, Point, text_size
from palestra.envs.math.exact import Number, shown

WIDTH, HEIGHT, MARGIN, SCALE = 420, 340, 46, 2

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number that belongs to points of the figure."""

    kind: str  # "length" (two points), "angle" (the vertex in the middle), or what else is asked; see geometry_kinds
    at: Names
    value: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """To scale: `points` are where lengths and angles are what they are said to be."""

    kind: str
    points: Mapping[str, Point]
    lines: tuple[tuple[str, str], ...]
    asked: Measure
    question: str  # without the measures
    given: tuple[Measure, ...] = ()
    dashed: tuple[tuple[str, str], ...] = ()
    circles: tuple[tuple[str, str], ...] = ()  # centre, and a point on it
    right: tuple[Names, ...] = ()  # right angles to mark
    shaded: tuple[Names, ...] = ()
    holes: tuple[Names, ...] = ()
    hidden: frozenset[str] = frozenset()  # points whose names are not shown


def in_words(figure: Figure, unit: str) -> str:
    """The given measures as a sentence."""
    parts = []
    for measure in figure.given:
        if measure.kind == "angle":
            parts.append(f"angle {''.join(measure.at)} = {shown(measure.value)}°")
        else:
            parts.append(f"{''.join(measure.at)} = {shown(measure.value)} {unit}")
    return f"Given: {', '.join(parts)}."


def drawn(figure: Figure, rng: Random, *, labelled: bool = True) -> bytes:
    """The figure as a PNG, turned and mirrored by chance; labels stay upright. `labelled`: with the given measures."""
    canvas = Canvas(WIDTH, HEIGHT)
    place = _placed(figure, rng)
    for outline in figure.shaded:
        canvas.shade([place[name] for name in outline], SHADE)
    for outline in figure.holes:
        canvas.shade([place[name] for name in outline], WHITE)
    for centre, edge in figure.circles:
        canvas.arc(place[centre], _distance(place[centre], place[edge]))
    for a, b in figure.lines:
        canvas.line(place[a], place[b])
    for a, b in figure.dashed:
        canvas.line(place[a], place[b], thickness=1.5, dash=7)
    for names in figure.right:
        _right_mark(canvas, *(place[name] for name in names))
    middle = _mean([place[name] for name in figure.points])
    labels = _Labels(canvas)
    told = figure.given if labelled else ()
    for measure in told:
        if measure.kind == "angle":
            labels.angle([place[name] for name in measure.at], f"{shown(measure.value)}°")
    if figure.asked.kind == "angle":
        labels.angle([place[name] for name in figure.asked.at], "?")
    sides = [(measure, shown(measure.value)) for measure in told] + [(figure.asked, "?")]
    for measure, text in sides:
        if measure.kind == "length":
            start, end = (place[name] for name in measure.at)
            if any(_between(place[name], start, end) for name in place if name not in figure.hidden):
                start, end = _dimension(canvas, start, end, middle)
            labels.beside(start, end, text)
    for name in figure.points:
        if name not in figure.hidden:
            labels.name(place[name], middle, name)
    return canvas.png()


def _placed(figure: Figure, rng: Random) -> dict[str, Point]:
    """Every point on the canvas: turned, perhaps mirrored, as large as fits."""
    turn, mirror = rng.uniform(0, 2 * pi), rng.choice((-1, 1))
    extent = dict(figure.points)
    for centre, edge in figure.circles:  # a circle reaches further than its points
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


class _Labels:
    """Puts text where it hides least and touches no other text."""

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self.taken: list[Box] = []

    def beside(self, a: Point, b: Point, text: str) -> None:
        """Next to the middle of a line."""
        wide, high = text_size(text, SCALE)
        length = _distance(a, b) or 1
        normal = (-(b[1] - a[1]) / length, (b[0] - a[0]) / length)
        reach = (abs(normal[0]) * wide + abs(normal[1]) * high) / 2
        spots = []
        for share in (0.5, 0.42, 0.58, 0.33, 0.67):
            x, y = a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
            for gap in (6, 11):
                for side in (1, -1):
                    away = side * (reach + gap)
                    spots.append((x + normal[0] * away, y + normal[1] * away))
        self._put(spots, text)

    def angle(self, at: list[Point], text: str) -> None:
        """An arc in the corner, the text within."""
        a, vertex, b = at
        start = degrees(atan2(a[1] - vertex[1], a[0] - vertex[0]))
        width = (degrees(atan2(b[1] - vertex[1], b[0] - vertex[0])) - start + 180) % 360 - 180
        radius = min(24.0, 0.35 * min(_distance(a, vertex), _distance(b, vertex)))
        self.canvas.arc(vertex, radius, start, start + width, thickness=1.5)
        middle = radians(start + width / 2)
        spots = [
            (vertex[0] + cos(middle + aside) * away, vertex[1] + sin(middle + aside) * away)
            for away in (radius + 16, radius + 24, radius + 34, radius + 46, radius + 60)
            for aside in (0.0, 0.12, -0.12)
        ]
        self._put(spots, text)

    def name(self, point: Point, middle: Point, text: str) -> None:
        """A point's name, rather on the outside."""
        out = atan2(point[1] - middle[1], point[0] - middle[0])
        spots = [
            (point[0] + cos(out + aside) * away, point[1] + sin(out + aside) * away)
            for away in (15, 19)
            for aside in (0.0, 0.5, -0.5, 1.0, -1.0, 1.6, -1.6, 2.4, -2.4, 3.1)
        ]
        self._put(spots, text)

    def _put(self, spots: list[Point], text: str) -> None:
        wide, high = text_size(text, SCALE)
        best: tuple[float, Box] | None = None
        for rank, (x, y) in enumerate(spots):
            if best is not None and best[0] <= 40.0 * rank:
                break  # none of the rest can be better
            left, top = round(x - wide / 2), round(y - high / 2)
            box = (left - 2, top - 2, left + wide + 2, top + high + 2)
            cost = self.canvas.darkness(box) + 40.0 * rank
            if any(_overlap(box, other) for other in self.taken):
                cost += 1e9
            if best is None or cost < best[0]:
                best = (cost, box)
        assert best is not None  # noqa: S101  # there is at least one spot
        box = best[1]
        self.taken.append(box)
        self.canvas.text(box[0] + 2, box[1] + 2, text, scale=SCALE)


def _dimension(canvas: Canvas, a: Point, b: Point, middle: Point) -> tuple[Point, Point]:
    """A thin line along a side that a point divides: so it is plain that the number is of the whole side."""
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
    """Whether a point lies on a line, and not at its ends."""
    first, second = _distance(a, point), _distance(point, b)
    return min(first, second) > 1 and first + second - _distance(a, b) < 0.01


def _right_mark(canvas: Canvas, a: Point, vertex: Point, b: Point) -> None:
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

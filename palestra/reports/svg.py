"""SVG line charts, styled by the CSS of the page that contains them, without dependencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

MOST = 240  # maximum points per line; longer lines are downsampled
SMALLEST_RANGE = 1e-300  # smaller ranges would underflow when they are divided into steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: float
    low: float | None = None  # lower bound of the interval
    high: float | None = None
    text: str = ""  # tooltip


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    style: str  # CSS class
    points: Sequence[Point]
    dots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Description of a chart; `marks` are labeled vertical lines."""

    title: str
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()
    width: int = 760
    height: int = 300
    x_label: str = "steps"
    span: tuple[float, float] | None = None  # range of the y axis, or None to fit the data
    form: Callable[[float], str] = "{:g}".format
    legend: bool = False


def draw(chart: Chart) -> str:
    """Return the chart as an `<svg>` element."""
    everything = [point for series in chart.series for point in series.points]
    if not everything:
        return ""
    frame = _Frame.around(chart, everything)
    parts = [
        f'<svg viewBox="0 0 {chart.width} {chart.height}" role="img" aria-label="{escape(chart.title)}" class="chart">',
        *frame.axes(chart),
        *(frame.mark(x, word) for x, word in chart.marks),
        *(frame.band(series) for series in chart.series),
        *(frame.curve(series) for series in chart.series),
        *(frame.dots(series) for series in chart.series if series.dots),
    ]
    if chart.legend:
        parts += _legend(chart)
    parts.append("</svg>")
    return "\n".join(part for part in parts if part)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from `low` to `high`."""
    if not high - low > SMALLEST_RANGE:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return list(
        dict.fromkeys(float(f"{i * step:.12g}") for i in range(first, last + 1))
    )  # rounded, to avoid 0.30000000000000004


def thinned(points: Sequence[Point], most: int = MOST) -> list[Point]:
    """Downsample to at most `most` points by averaging neighboring points."""
    if len(points) <= most:
        return list(points)
    bounds = [len(points) * i // most for i in range(most + 1)]
    return [_mean(points[a:b]) for a, b in pairwise(bounds)]


def _mean(points: Sequence[Point]) -> Point:
    def over(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return Point(
        x=sum(p.x for p in points) / len(points),
        y=sum(p.y for p in points) / len(points),
        low=over([p.low for p in points]),
        high=over([p.high for p in points]),
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """Mapping from data coordinates to pixels."""

    left: float
    top: float
    right: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    @classmethod
    def around(cls, chart: Chart, points: Sequence[Point]) -> _Frame:
        x_low, x_high = min(p.x for p in points), max(p.x for p in points)
        if chart.span is not None:
            y_low, y_high = chart.span
        else:
            y_low, y_high = min(p.y for p in points), max(p.y for p in points)
            room = 0.06 * (y_high - y_low) or abs(y_high) * 0.1 or 1.0
            y_low, y_high = (0.0 if 0 <= y_low < room * 5 else y_low - room), y_high + room
        return cls(
            left=54 if chart.legend else 44,
            top=30 if chart.legend else 12,
            right=chart.width - 14,
            bottom=chart.height - (38 if chart.x_label else 22),
            x_low=x_low,
            x_high=x_high if x_high > x_low else x_low + 1,
            y_low=y_low,
            y_high=y_high,
        )

    def x(self, value: float) -> float:
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - self.left)

    def y(self, value: float) -> float:
        inside = min(max(value, self.y_low), self.y_high)
        return self.bottom - (inside - self.y_low) / (self.y_high - self.y_low) * (self.bottom - self.top)

    def axes(self, chart: Chart) -> list[str]:
        tall = self.bottom - self.top > 150
        elements = []
        for value in ticks(self.y_low, self.y_high, 5 if tall else 3):
            y = self.y(value)
            elements.append(f'<line class="grid" x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            elements.append(
                f'<text class="tick end" x="{self.left - 6}" y="{y + 4:.1f}">{escape(chart.form(value))}</text>'
            )
        wide = self.right - self.left > 400
        whole = [value for value in ticks(self.x_low, self.x_high, 8 if wide else 4) if value == int(value)]
        elements += [
            f'<text class="tick middle" x="{self.x(value):.1f}" y="{self.bottom + 16}">{int(value)}</text>'
            for value in whole  # steps are integers
        ]
        elements.append(
            f'<line class="axis" x1="{self.left}" x2="{self.right}" y1="{self.bottom}" y2="{self.bottom}"/>'
        )
        if chart.x_label:
            middle = (self.left + self.right) / 2
            elements.append(
                f'<text class="tick middle" x="{middle}" y="{self.bottom + 33}">{escape(chart.x_label)}</text>'
            )
        return elements

    def mark(self, value: float, word: str) -> str:
        x = self.x(value)
        return (
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{self.bottom}"/>'
            f'<text class="tick" x="{x + 4:.1f}" y="{self.top + 11}">{escape(word)}</text>'
        )

    def band(self, series: Series) -> str:
        known = [(p.x, p.low, p.high) for p in thinned(series.points) if p.low is not None and p.high is not None]
        if len(known) < 2:
            return ""
        above = " ".join(f"{self.x(x):.1f},{self.y(high):.1f}" for x, _, high in known)
        below = " ".join(f"{self.x(x):.1f},{self.y(low):.1f}" for x, low, _ in reversed(known))
        return f'<polygon class="band {series.style}" points="{above} {below}"/>'

    def curve(self, series: Series) -> str:
        points = thinned(series.points)
        if len(points) == 1:
            x, y = self.x(points[0].x), self.y(points[0].y)
            return f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        path = " ".join(f"{self.x(p.x):.1f},{self.y(p.y):.1f}" for p in points)
        return f'<polyline class="curve {series.style}" points="{path}"/>'

    def dots(self, series: Series) -> str:
        """Render every point as a dot with its interval and a tooltip."""
        elements = []
        for p in series.points:
            x, y = self.x(p.x), self.y(p.y)
            if p.low is not None and p.high is not None:
                elements.append(
                    f'<line class="whisker {series.style}" x1="{x:.1f}" x2="{x:.1f}" '
                    f'y1="{self.y(p.low):.1f}" y2="{self.y(p.high):.1f}"/>'
                )
            elements.append(
                f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
                f"<title>{escape(p.text)}</title></circle>"
            )
        return "".join(elements)


def _legend(chart: Chart) -> list[str]:
    found, x = [], 54.0
    for series in chart.series:
        if series.points:
            found.append(f'<line class="curve {series.style}" x1="{x}" x2="{x + 20}" y1="12" y2="12"/>')
            found.append(f'<text class="word" x="{x + 26}" y="16">{escape(series.name)}</text>')
            x += 50 + 7 * len(series.name)
    return found

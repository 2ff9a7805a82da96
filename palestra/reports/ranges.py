"""SVG chart of named values with their confidence intervals, without dependencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from palestra.reports.svg import ticks

WIDTH, LINE, TOP, BOTTOM = 760, 22, 8, 26
_LETTER = 7.2  # maximum width of a character in pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    marks: tuple[float, ...] = ()  # reference values, rendered as thin lines


def draw(
    title: str,
    ranges: Sequence[Range],
    *,
    span: tuple[float, float] | None = None,
    form: Callable[[float], str] = "{:g}".format,
) -> str:
    """Return an `<svg>` element with one row per range: a dot for the value and a line for the interval."""
    if not ranges:
        return ""
    known = [x for one in ranges for x in (one.value, one.low, one.high, *one.marks) if x is not None]
    start, end = span or (min(known), max(known))
    if not end > start:
        start, end = start - 0.5, end + 0.5
    left = min(360.0, 16 + _LETTER * max(len(one.name) for one in ranges))
    right, bottom = WIDTH - 60.0, TOP + LINE * len(ranges)
    height = bottom + BOTTOM

    def x(value: float) -> float:
        return left + (min(max(value, start), end) - start) / (end - start) * (right - left)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" class="chart">']
    for value in ticks(start, end):
        parts.append(f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick middle" x="{x(value):.1f}" y="{bottom + 16}">{escape(form(value))}</text>')
    for place, one in enumerate(ranges):
        y = TOP + LINE * (place + 0.5)
        shown = one.name if len(one.name) * _LETTER < left else one.name[: int(left / _LETTER) - 2] + "..."
        parts.append(f'<text class="word end" x="{left - 8:.1f}" y="{y + 4:.1f}">{escape(shown)}</text>')
        parts += [
            f'<line class="axis" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{y - 6:.1f}" y2="{y + 6:.1f}"/>'
            for mark in one.marks
        ]
        words = form(one.value)
        if one.low is not None and one.high is not None:
            words += f" ({form(one.low)} to {form(one.high)})"
            parts.append(
                f'<line class="whisker two" x1="{x(one.low):.1f}" x2="{x(one.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
        parts.append(
            f'<circle class="dot two" cx="{x(one.value):.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(f'{one.name}: {words}')}</title></circle>"
        )
        parts.append(f'<text class="tick" x="{right + 8:.1f}" y="{y + 4:.1f}">{escape(form(one.value))}</text>')
    parts.append("</svg>")
    return "\n".join(parts)

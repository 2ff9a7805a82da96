"""Helpers for figures: point names, measures, and numbers that lead to exact results."""

from __future__ import annotations

from collections.abc import Sequence
from math import radians, tan
from random import Random

from palestra.envs.math.canvas import Point
from palestra.envs.math.exact import Number
from palestra.envs.math.figures import Measure

LETTERS = "ABCDEFGHKLMNPQRSTUVWXYZ"  # excludes O, which is reserved for centers, and I and J, which are hard to read
PYTHAGOREAN_TRIPLES = (
    (3, 4, 5),
    (5, 12, 13),
    (8, 15, 17),
    (7, 24, 25),
    (20, 21, 29),
    (12, 35, 37),
    (9, 40, 41),
    (28, 45, 53),
)
_BALANCED = tuple(sides for sides in PYTHAGOREAN_TRIPLES if sides[0] * 4 >= sides[1])  # excludes very flat triangles


def letters(rng: Random, count: int) -> list[str]:
    return sorted(rng.sample(LETTERS, count))


def length(a: str, b: str, value: Number) -> Measure:
    return Measure(kind="length", at=(a, b), value=value)


def angle_at(a: str, vertex: str, b: str, value: Number) -> Measure:
    return Measure(kind="angle", at=(a, vertex, b), value=value)


def polygon_lines(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names, [*names[1:], names[0]], strict=True))


def pythagorean_triple(rng: Random, size: int) -> tuple[int, int, int]:
    a, b, c = rng.choice([sides for sides in _BALANCED if sides[2] <= size] or _BALANCED[:1])
    factor = rng.randint(1, max(1, size // c))
    if rng.random() < 0.5:
        a, b = b, a
    return a * factor, b * factor, c * factor


def balanced_pair(rng: Random, size: int) -> tuple[int, int]:
    """Return two random lengths; the larger is at most about three times the smaller."""
    first = rng.randint(3, size)
    return first, rng.randint(max(2, first // 3), min(size, 3 * first))


def apex(first: float, second: float, base: float = 10.0) -> Point:
    """Return the apex of the triangle with base corners (0, 0) and (base, 0) and these base angles in degrees."""
    t, u = tan(radians(first)), tan(radians(second))
    if abs(first - 90) < 1e-9:
        return 0.0, base * u
    if abs(second - 90) < 1e-9:
        return base, base * t
    x = base * u / (t + u)
    return x, x * t

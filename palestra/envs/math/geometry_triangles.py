"""Figures with triangles and crossing lines."""

from __future__ import annotations

from fractions import Fraction
from math import atan2, cos, radians, sin, sqrt, tan
from random import Random

from palestra.envs.math.canvas import Point
from palestra.envs.math.figures import Figure, Measure
from palestra.envs.math.geometry_parts import (
    PYTHAGOREAN_TRIPLES,
    angle_at,
    apex,
    balanced_pair,
    length,
    letters,
    polygon_lines,
    pythagorean_triple,
)


def right_triangle(rng: Random, size: int) -> Figure:
    a, b, c = letters(rng, 3)  # the right angle is at c
    long, short, slope = pythagorean_triple(rng, size)
    sides = [length(c, a, long), length(c, b, short), length(a, b, slope)]
    target = sides.pop(rng.randrange(3))
    return Figure(
        kind="right_triangle",
        points={a: (long, 0), b: (0, short), c: (0, 0)},
        lines=polygon_lines([a, b, c]),
        right_angles=((a, c, b),),
        given=tuple(sides),
        target=target,
        question=f"Triangle {a}{b}{c} has a right angle at {c}. How long is {''.join(target.at)}?",
    )


def triangle_area(rng: Random, size: int) -> Figure:
    a, b, c, foot = letters(rng, 4)
    base, height = balanced_pair(rng, size)
    at = Fraction(rng.randint(1, 9), 10) * base
    return Figure(
        kind="triangle_area",
        points={a: (0, 0), b: (base, 0), c: (float(at), height), foot: (float(at), 0)},
        lines=polygon_lines([a, b, c]),
        dashed=((c, foot),),
        right_angles=((c, foot, b),),
        given=(length(a, b, base), length(c, foot, height)),
        target=Measure(kind="area", at=(a, b, c), value=Fraction(base * height, 2)),
        question=f"{c}{foot} is the height of triangle {a}{b}{c} to the side {a}{b}. What is the area of the triangle?",
    )


def triangle_angle(rng: Random, size: int) -> Figure:  # noqa: ARG001
    a, b, c = letters(rng, 3)
    first = rng.randint(25, 110)
    second = rng.randint(25, 155 - first)
    angles = [angle_at(c, a, b, first), angle_at(a, b, c, second), angle_at(a, c, b, 180 - first - second)]
    target = angles.pop(rng.randrange(3))
    return Figure(
        kind="triangle_angle",
        points={a: (0, 0), b: (10, 0), c: apex(first, second)},
        lines=polygon_lines([a, b, c]),
        given=tuple(angles),
        target=target,
        question=f"How many degrees is the angle of triangle {a}{b}{c} at {target.at[1]}?",
    )


def isosceles(rng: Random, size: int) -> Figure:  # noqa: ARG001
    a, b, c = letters(rng, 3)  # a is the apex
    base = rng.randint(30, 75)
    top = angle_at(b, a, c, 180 - 2 * base)
    foot = rng.choice([angle_at(a, b, c, base), angle_at(a, c, b, base)])
    given, target = (top, foot) if rng.random() < 0.5 else (foot, top)
    return Figure(
        kind="isosceles",
        points={b: (0, 0), c: (10, 0), a: apex(base, base)},
        lines=polygon_lines([a, b, c]),
        given=(given,),
        target=target,
        question=(
            f"In triangle {a}{b}{c}, the sides {a}{b} and {a}{c} are equally long. "
            f"How many degrees is the angle at {target.at[1]}?"
        ),
    )


def exterior_angle(rng: Random, size: int) -> Figure:  # noqa: ARG001
    a, b, c, d = letters(rng, 4)  # d lies on ab, beyond b
    first = rng.randint(25, 90)
    second = rng.randint(30, 150 - first)
    measures = [angle_at(d, b, c, 180 - second), angle_at(b, a, c, first), angle_at(a, c, b, 180 - first - second)]
    target = measures.pop(rng.randrange(3))
    return Figure(
        kind="exterior_angle",
        points={a: (0, 0), b: (10, 0), c: apex(first, second), d: (15, 0)},
        lines=(*polygon_lines([a, b, c]), (b, d)),
        given=tuple(measures),
        target=target,
        question=(
            f"The side {a}{b} of triangle {a}{b}{c} is extended beyond {b} to {d}. "
            f"How many degrees is angle {''.join(target.at)}?"
        ),
    )


def parallel_lines(rng: Random, size: int) -> Figure:  # noqa: ARG001
    a, b, c, d, e, f, p, q = letters(rng, 8)  # ab and cd are parallel; ef crosses them at p and q
    tilt = rng.choice([*range(35, 80), *range(100, 145)])
    shift = 5 / tan(radians(tilt))
    points: dict[str, Point] = {p: (0, 0), q: (shift, 5), a: (-6, 0), b: (6, 0), c: (shift - 6, 5), d: (shift + 6, 5)}
    points[e] = (-0.7 * shift, -3.5)
    points[f] = (1.7 * shift, 8.5)
    at_p = [
        angle_at(b, p, q, tilt),
        angle_at(a, p, q, 180 - tilt),
        angle_at(a, p, e, tilt),
        angle_at(b, p, e, 180 - tilt),
    ]
    at_q = [
        angle_at(d, q, f, tilt),
        angle_at(c, q, f, 180 - tilt),
        angle_at(c, q, p, tilt),
        angle_at(d, q, p, 180 - tilt),
    ]
    given, target = rng.choice(at_p), rng.choice(at_q)
    if rng.random() < 0.5:
        given, target = target, given
    return Figure(
        kind="parallel_lines",
        points=points,
        lines=((a, b), (c, d), (e, f)),
        given=(given,),
        target=target,
        question=(
            f"The lines {a}{b} and {c}{d} are parallel. The line {e}{f} crosses {a}{b} at {p} and {c}{d} at {q}. "
            f"How many degrees is angle {''.join(target.at)}?"
        ),
    )


def similar(rng: Random, size: int) -> Figure:
    a, b, c, d, e = letters(rng, 5)  # d is on ab, e is on ac, and de is parallel to bc
    part, rest = rng.randint(2, size), rng.randint(2, size)
    while not 1 / 3 <= part / rest <= 3:
        part, rest = rng.randint(2, size), rng.randint(2, size)
    unit = rng.randint(1, 3)
    ratio = Fraction(part, part + rest)
    side, bottom = (part + rest) * unit, rng.randint(part + rest, 2 * (part + rest)) * unit
    # Length of ac; the loop ensures the triangle inequality.
    whole = Fraction(rng.randint(bottom // 2 + 1, bottom + side // 2))
    while not abs(bottom - side) * 1.1 < whole < (bottom + side) * 0.95:
        whole = Fraction(rng.randint(1, bottom + side))
    # The x coordinate of a, with b at (0, 0) and c at (bottom, 0).
    x = (bottom**2 + side**2 - float(whole) ** 2) / (2 * bottom)
    top = (x, sqrt(side**2 - x**2))
    share = float(ratio)
    points: dict[str, Point] = {a: top, b: (0, 0), c: (bottom, 0)}
    points[d] = (top[0] * (1 - share), top[1] * (1 - share))
    points[e] = (top[0] + (bottom - top[0]) * share, top[1] * (1 - share))
    parts = [length(a, d, part * unit), length(d, b, rest * unit)]
    if rng.random() < 0.5:
        pair = [length(d, e, ratio * bottom), length(b, c, bottom)]
    else:
        pair = [length(a, e, ratio * whole), length(e, c, whole - ratio * whole)]
    target, given = pair
    if given.value.denominator != 1:  # show only whole numbers in the image
        given, target = length(b, c, bottom), length(d, e, ratio * bottom)
    return Figure(
        kind="similar",
        points=points,
        lines=(*polygon_lines([a, b, c]), (d, e)),
        given=(*parts, given),
        target=target,
        question=(
            f"In triangle {a}{b}{c}, the line {d}{e} is parallel to {b}{c}. How long is {''.join(target.at)}? "
            "Give the exact value, as a fraction if necessary."
        ),
    )


def two_triangles(rng: Random, size: int) -> Figure:
    """Generate two right triangles that share a side, whose length must be computed first."""
    a, b, c, d = letters(rng, 4)  # the right angles are at b and c; the triangles share ac
    chains = [
        (first, second)
        for first in PYTHAGOREAN_TRIPLES
        for second in PYTHAGOREAN_TRIPLES
        for leg in second[:2]
        if leg == first[2] and 4 * min(second[:2]) >= max(second[:2])
    ]
    chains += [((15, 20, 25), (25, 60, 65)), ((9, 12, 15), (8, 15, 17)), ((12, 16, 20), (20, 21, 29))]
    chains += [((6, 8, 10), (10, 24, 26)), ((21, 28, 35), (12, 35, 37)), ((15, 36, 39), (39, 52, 65))]
    first, second = rng.choice(chains)
    factor = rng.randint(1, max(1, 2 * size // second[2]))
    one, two, shared = (side * factor for side in (first if rng.random() < 0.5 else (first[1], first[0], first[2])))
    other = next(leg for leg in second[:2] if leg * factor != shared) * factor
    slope = second[2] * factor
    turn = atan2(two, one)
    # b is at the origin, a on its right and c above it; d is on the other side of ac, and cd is perpendicular to ac.
    points: dict[str, Point] = {a: (one, 0), b: (0, 0), c: (0, two)}
    points[d] = (other * sin(turn), two + other * cos(turn))
    kind = rng.choice(("second", "first", "area", "perimeter"))
    given = [length(a, b, one), length(b, c, two), length(c, d, other)]
    if kind == "second":
        target, question = length(a, d, slope), f"How long is {a}{d}?"
    elif kind == "first":
        given = [length(b, c, two), length(c, d, other), length(a, d, slope)]
        target, question = length(a, b, one), f"How long is {a}{b}?"
    else:
        value = Fraction(one * two + shared * other, 2) if kind == "area" else one + two + other + slope
        target, question = Measure(kind=kind, at=(a, b, c, d), value=value), f"What is the {kind} of {a}{b}{c}{d}?"
    return Figure(
        kind="two_triangles",
        points=points,
        lines=(*polygon_lines([a, b, c, d]), (a, c)),
        right_angles=((a, b, c), (a, c, d)),
        given=tuple(given),
        target=target,
        question=(
            f"The triangle {a}{b}{c} has a right angle at {b}, and the triangle {a}{c}{d} has one at {c}. {question}"
        ),
    )

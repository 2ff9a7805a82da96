"""Figures with rectangles, trapezoids and their combinations."""

from __future__ import annotations

from fractions import Fraction
from math import cos, radians, sin
from random import Random

from palestra.envs.math.canvas import Point
from palestra.envs.math.figures import Figure, Measure
from palestra.envs.math.geometry_parts import (
    LETTERS,
    angle_at,
    balanced_pair,
    length,
    letters,
    polygon_lines,
    pythagorean_triple,
)


def rectangle(rng: Random, size: int) -> Figure:
    names = a, b, c, d = tuple(letters(rng, 4))
    kind = rng.choice(("area", "perimeter", "length"))
    if kind == "length":
        wide, high, across = pythagorean_triple(rng, size)
        target = length(a, c, across)
        text = f"How long is the diagonal {a}{c} of the rectangle {a}{b}{c}{d}?"
    else:
        wide, high = balanced_pair(rng, size)
        target = Measure(kind=kind, at=names, value=wide * high if kind == "area" else 2 * (wide + high))
        text = f"What is the {kind} of the rectangle {a}{b}{c}{d}?"
    return Figure(
        kind="rectangle",
        points={a: (0, 0), b: (wide, 0), c: (wide, high), d: (0, high)},
        lines=(*polygon_lines(names), *([(a, c)] if kind == "length" else [])),
        right_angles=((a, b, c), (c, d, a)),
        given=(length(a, b, wide), length(b, c, high)),
        target=target,
        question=text,
    )


def corner_shape(rng: Random, size: int) -> Figure:
    """Generate an L shape (a rectangle with a corner cut out) with four of its six sides given."""
    names = a, b, c, d, e, f = tuple(letters(rng, 6))
    wide, high = balanced_pair(rng, max(8, size))
    wide, high = max(wide, 4), max(high, 4)
    cut_x, cut_y = rng.randint(wide // 4 or 1, wide * 3 // 4), rng.randint(high // 4 or 1, high * 3 // 4)
    kind = rng.choice(("area", "perimeter"))
    value = wide * high - cut_x * cut_y if kind == "area" else 2 * (wide + high)
    return Figure(
        kind="corner_shape",
        points={
            a: (0, 0),
            b: (wide, 0),
            c: (wide, high - cut_y),
            d: (wide - cut_x, high - cut_y),
            e: (wide - cut_x, high),
            f: (0, high),
        },
        lines=polygon_lines(names),
        given=(length(a, b, wide), length(f, a, high), length(c, d, cut_x), length(d, e, cut_y)),
        target=Measure(kind=kind, at=names, value=value),
        question=f"Adjacent sides of the figure {''.join(names)} are perpendicular. What is its {kind}?",
    )


def trapezoid(rng: Random, size: int) -> Figure:
    a, b, c, d, foot = letters(rng, 5)
    long, height = balanced_pair(rng, max(6, size))
    long = max(long, 5)
    short = rng.randint(max(2, long // 3), long - 2)
    at = Fraction(rng.randint(1, 9), 10) * (long - short)
    return Figure(
        kind="trapezoid",
        points={a: (0, 0), b: (long, 0), c: (float(at) + short, height), d: (float(at), height), foot: (float(at), 0)},
        lines=polygon_lines([a, b, c, d]),
        dashed=((d, foot),),
        right_angles=((d, foot, b),),
        given=(length(a, b, long), length(c, d, short), length(d, foot, height)),
        target=Measure(kind="area", at=(a, b, c, d), value=Fraction((long + short) * height, 2)),
        question=(
            f"In the trapezoid {a}{b}{c}{d}, the sides {a}{b} and {c}{d} are parallel and {d}{foot} is the height. "
            "What is its area?"
        ),
    )


def frame(rng: Random, size: int) -> Figure:
    """Generate a shaded rectangle with a rectangular hole."""
    names = a, b, c, d, e, f, g, h = letters(rng, 8)
    wide, high = (max(8, side) for side in balanced_pair(rng, max(10, size)))
    inner_wide, inner_high = rng.randint(wide * 2 // 5, wide * 2 // 3), rng.randint(high * 2 // 5, high * 2 // 3)
    x, y = (wide - inner_wide) / 2, (high - inner_high) / 2
    outer, inner = tuple(names[:4]), tuple(names[4:])
    return Figure(
        kind="frame",
        points={
            a: (0, 0),
            b: (wide, 0),
            c: (wide, high),
            d: (0, high),
            e: (x, y),
            f: (x + inner_wide, y),
            g: (x + inner_wide, y + inner_high),
            h: (x, y + inner_high),
        },
        lines=(*polygon_lines(outer), *polygon_lines(inner)),
        shaded=(outer,),
        holes=(inner,),
        given=(length(a, b, wide), length(b, c, high), length(e, f, inner_wide), length(f, g, inner_high)),
        target=Measure(kind="difference", at=(*outer, "|", *inner), value=wide * high - inner_wide * inner_high),
        question=f"{''.join(outer)} and {''.join(inner)} are rectangles. What is the area of the shaded part?",
    )


def house(rng: Random, size: int) -> Figure:
    """Generate a rectangle with a triangle on top; the question asks for the area or perimeter of the whole figure."""
    names = a, b, c, tip, d = tuple(letters(rng, 5))
    half, rise, slope = pythagorean_triple(rng, size)
    high = rng.randint(max(2, half // 2), max(4, 3 * half))
    foot = next(letter for letter in LETTERS if letter not in names)
    kind = rng.choice(("area", "perimeter"))
    value = 2 * half * high + half * rise if kind == "area" else 2 * half + 2 * high + 2 * slope
    return Figure(
        kind="house",
        points={
            a: (0, 0),
            b: (2 * half, 0),
            c: (2 * half, high),
            tip: (half, high + rise),
            d: (0, high),
            foot: (half, high),
        },
        lines=polygon_lines(names),
        dashed=((d, c), (tip, foot)),
        right_angles=((a, b, c), (d, a, b), (tip, foot, c)),
        given=(length(a, b, 2 * half), length(b, c, high), length(tip, foot, rise)),
        target=Measure(kind=kind, at=names, value=value),
        question=(
            f"{a}{b}{c}{d} is a rectangle. {foot} is the midpoint of {c}{d}, and {tip}{foot} is perpendicular to "
            f"{c}{d}. What is the {kind} of the figure {''.join(names)}, outlined by solid lines?"
        ),
    )


def quadrilateral_angle(rng: Random, size: int) -> Figure:  # noqa: ARG001
    """Generate a quadrilateral with three given angles."""
    while True:
        names = a, b, c, d = tuple(letters(rng, 4))
        first, second, third = rng.randint(60, 120), rng.randint(60, 120), rng.randint(60, 130)
        last = 360 - first - second - third
        if not 50 <= last <= 140:
            continue
        # Two sides have fixed lengths; the last corner is the intersection of the other two sides.
        ab, ad = 10.0, rng.uniform(6, 11)
        corner = (ad * cos(radians(first)), ad * sin(radians(first)))
        from_b, from_d = radians(180 - second), radians(first + 180 + last)
        across = cos(from_b) * sin(from_d) - sin(from_b) * cos(from_d)
        x, y = corner[0] - ab, corner[1]
        t = (x * sin(from_d) - y * cos(from_d)) / across
        u = (x * sin(from_b) - y * cos(from_b)) / across
        if not (4 < t < 16 and 4 < u < 16):
            continue
        points: dict[str, Point] = {a: (0, 0), b: (ab, 0), d: corner}
        points[c] = (ab + t * cos(from_b), t * sin(from_b))
        angles = [
            angle_at(d, a, b, first),
            angle_at(a, b, c, second),
            angle_at(b, c, d, third),
            angle_at(c, d, a, last),
        ]
        target = angles.pop(rng.randrange(4))
        return Figure(
            kind="quadrilateral_angle",
            points={name: points[name] for name in names},
            lines=polygon_lines(names),
            given=tuple(angles),
            target=target,
            question=f"How many degrees is the angle of the quadrilateral {''.join(names)} at {target.at[1]}?",
        )

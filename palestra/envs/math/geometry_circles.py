"""Figures with a circle: area, circumference, angles, tangents and chords."""

from __future__ import annotations

from fractions import Fraction
from math import cos, pi, radians, sin
from random import Random

from palestra.envs.math.canvas import Point
from palestra.envs.math.figures import Figure, Measure
from palestra.envs.math.geometry_parts import (
    angle_at,
    length,
    letters,
    pythagorean_triple,
)


def circle(rng: Random, size: int) -> Figure:
    a, b = letters(rng, 2)
    radius = Fraction(rng.randint(3, 2 * size), 2)
    radius_given = rng.random() < 0.5
    kind = rng.choice(("disc", "circumference"))
    what = "area" if kind == "disc" else "circumference"
    turn = rng.uniform(0, 2 * pi)
    edge = (float(radius) * cos(turn), float(radius) * sin(turn))
    if radius_given:
        points: dict[str, Point] = {"O": (0, 0), a: edge}
        lines, given, hidden = (("O", a),), length("O", a, radius), frozenset[str]()
        statement = f"O is the center of the circle and {a} lies on it."
    else:
        points = {"O": (0, 0), a: edge, b: (-edge[0], -edge[1])}
        lines, given, hidden = ((a, b),), length(a, b, 2 * radius), frozenset({"O"})
        statement = f"{a}{b} is a diameter of the circle."
    return Figure(
        kind="circle",
        points=points,
        lines=lines,
        circles=(("O", a),),
        hidden=hidden,
        given=(given,),
        target=Measure(kind=kind, at=("O", a), value=radius**2 if kind == "disc" else 2 * radius),
        question=f"{statement} The {what} of the circle is k times π. What is k?",
    )


def sector(rng: Random, size: int) -> Figure:
    a, b = letters(rng, 2)
    radius, angle = rng.randint(2, size), rng.choice((30, 36, 40, 45, 50, 60, 72, 75, 80, 90, 100, 110, 120, 135, 150))
    kind = rng.choice(("sector", "arc"))
    value = Fraction(angle, 360) * radius**2 if kind == "sector" else Fraction(angle, 180) * radius
    what = "area of the sector" if kind == "sector" else "length of the shorter arc"
    tip = radians(angle)
    return Figure(
        kind="sector",
        points={"O": (0, 0), a: (radius, 0), b: (radius * cos(tip), radius * sin(tip))},
        lines=(("O", a), ("O", b)),
        circles=(("O", a),),
        given=(length("O", a, radius), angle_at(a, "O", b, angle)),
        target=Measure(kind=kind, at=(a, "O", b), value=value),
        question=(
            f"O is the center of the circle. The {what} between {a} and {b} is k times π. "
            "What is k? Give the exact value, as a fraction if necessary."
        ),
    )


def inscribed_angle(rng: Random, size: int) -> Figure:  # noqa: ARG001
    a, b, c = letters(rng, 3)
    half = rng.randint(25, 80)
    central, inscribed = angle_at(a, "O", b, 2 * half), angle_at(a, c, b, half)
    given, target = (central, inscribed) if rng.random() < 0.5 else (inscribed, central)
    spot = radians(rng.randint(2 * half + 30, 330))
    return Figure(
        kind="inscribed_angle",
        points={"O": (0, 0), a: (1, 0), b: (cos(radians(2 * half)), sin(radians(2 * half))), c: (cos(spot), sin(spot))},
        lines=(("O", a), ("O", b), (c, a), (c, b)),
        circles=(("O", a),),
        given=(given,),
        target=target,
        question=(f"{a}, {b} and {c} lie on the circle with center O. How many degrees is angle {''.join(target.at)}?"),
    )


def tangent(rng: Random, size: int) -> Figure:
    p, t = letters(rng, 2)
    radius, touch, away = pythagorean_triple(rng, size)
    sides = [length("O", t, radius), length(p, t, touch), length("O", p, away)]
    target = sides.pop(rng.randrange(3))
    return Figure(
        kind="tangent",
        points={"O": (0, 0), t: (0, radius), p: (touch, radius)},
        lines=(("O", t), (p, t), ("O", p)),
        circles=(("O", t),),
        given=tuple(sides),
        target=target,
        question=(f"The line {p}{t} is tangent to the circle with center O at {t}. How long is {''.join(target.at)}?"),
    )


def chord(rng: Random, size: int) -> Figure:
    a, b, m = letters(rng, 3)
    half, away, radius = pythagorean_triple(rng, size)
    sides = [length(a, b, 2 * half), length("O", m, away), length("O", a, radius)]
    target = sides.pop(rng.randrange(3))
    return Figure(
        kind="chord",
        points={"O": (0, 0), a: (-half, away), b: (half, away), m: (0, away)},
        lines=((a, b), ("O", a)),
        dashed=(("O", m),),
        right_angles=(("O", m, b),),
        circles=(("O", a),),
        given=tuple(sides),
        target=target,
        question=(
            f"{a}{b} is a chord of the circle with center O, and {m} is the foot of the perpendicular from O to "
            f"{a}{b}. How long is {''.join(target.at)}?"
        ),
    )

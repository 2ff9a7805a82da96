"""Geometry: an image of a figure, and a question about a length, an angle or an area."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math import geometry_circles as circles
from palestra.envs.math import geometry_polygons as polygons
from palestra.envs.math import geometry_triangles as triangles
from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import format_number
from palestra.envs.math.figures import Figure, describe_measures, draw_figure
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_int, check_subset
from palestra.errors import BadValue
from palestra.types import ImagePart, Part, TextPart

MEASURES = ("picture", "text", "both")
KINDS: Mapping[str, Callable[[Random, int], Figure]] = {
    draw.__name__: draw
    for draw in (
        triangles.right_triangle,
        triangles.triangle_area,
        triangles.triangle_angle,
        triangles.isosceles,
        triangles.exterior_angle,
        triangles.parallel_lines,
        polygons.rectangle,
        polygons.corner_shape,
        polygons.trapezoid,
        circles.circle,
        circles.sector,
        circles.inscribed_angle,
        circles.tangent,
        circles.chord,
        triangles.similar,
        polygons.frame,
        polygons.house,
        triangles.two_triangles,
        polygons.quadrilateral_angle,
    )
}
_UNITS = ("cm", "m", "mm", "km", "inches", "feet", "miles", "units")


class Geometry(MathTask):
    """Questions about a figure that is drawn to scale; the observation is text with a PNG image.

    `kinds` is a subset of KINDS; `size` bounds most lengths. `measures` selects where the given lengths and angles
    appear: in the "picture", in the "text", or in "both". There are several hundred thousand different items at the
    easy level and millions at the other levels, not counting rotations.
    """

    levels: ClassVar[Levels] = {
        "easy": {
            "kinds": ("right_triangle", "triangle_area", "triangle_angle", "rectangle", "circle", "isosceles"),
            "size": 30,
        },
        "medium": {
            "kinds": (
                "right_triangle",
                "exterior_angle",
                "parallel_lines",
                "corner_shape",
                "trapezoid",
                "sector",
                "inscribed_angle",
                "quadrilateral_angle",
                "frame",
            ),
            "size": 80,
        },
        "hard": {
            "kinds": ("tangent", "chord", "similar", "corner_shape", "sector", "frame", "house", "two_triangles"),
            "size": 500,
        },
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        kinds: tuple[str, ...] | None = None,
        size: int | None = None,
        measures: str = "picture",
        **options: Unpack[TaskOptions],
    ) -> None:
        if measures not in MEASURES:
            raise BadValue(f"measures must be one of {', '.join(MEASURES)}; got {measures!r}")
        super().__init__(level, {"kinds": kinds, "size": size, "measures": measures}, **options)

    @classmethod
    def check(cls, *, kinds: Any, size: Any, measures: Any) -> None:  # noqa: ARG003  # `measures` is checked in __init__
        check_subset("kinds", kinds, KINDS)
        check_int("size", size, 10, 100_000)

    @classmethod
    def generate(cls, rng: Random, *, kinds: tuple[str, ...], size: int, measures: str = "picture") -> Item:
        figure = KINDS[rng.choice(kinds)](rng, size)
        unit = rng.choice(_UNITS)
        text = figure.question
        has_lengths = any(measure.kind == "length" for measure in figure.given)
        if has_lengths:
            text += f" All lengths are in {unit}."
        if measures != "picture":
            text += f" {describe_measures(figure, unit)}"
        question: list[Part] = [
            TextPart(type="text", text="Look at the figure.\n"),
            ImagePart(type="image", image=draw_figure(figure, rng, labelled=measures != "text")),
            TextPart(type="text", text=f"\n{text}"),
        ]
        return Item(question=question, answer=format_number(figure.target.value), key=figure.kind)

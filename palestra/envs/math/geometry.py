"""Geometry: a drawn figure with its measures, and a question about a length, an angle or an area."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import shown
from palestra.envs.math.figures import drawn, in_words
from palestra.envs.math.geometry_kinds import KINDS
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_some, check_whole
from palestra.errors import BadValue
from palestra.types import ImagePart, Part, TextPart

MEASURES = ("picture", "text", "both")
_UNITS = ("cm", "m", "mm", "km", "inches", "feet", "miles", "units")


class Geometry(MathTask):
    """The observation is text and a picture, a PNG that is drawn to scale.

    `kinds` are some of KINDS, `size` bounds most lengths. `measures` says where the given lengths and angles are: in
    the "picture", where they must be read, in the "text", as well ("both"). There are some hundred thousand different
    easy items and millions at the other levels, not counting how a figure is turned.
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
            raise BadValue(f"measures is one of {', '.join(MEASURES)}, got {measures!r}")
        super().__init__(level, {"kinds": kinds, "size": size, "measures": measures}, **options)

    @classmethod
    def check(cls, *, kinds: Any, size: Any, measures: Any) -> None:  # noqa: ARG003  # checked above
        check_some("kinds", kinds, KINDS)
        check_whole("size", size, 10, 100_000)

    @classmethod
    def generate(cls, rng: Random, *, kinds: tuple[str, ...], size: int, measures: str = "picture") -> Item:
        figure = KINDS[rng.choice(kinds)](rng, size)
        unit = rng.choice(_UNITS)
        text = figure.question
        metric = any(measure.kind == "length" for measure in figure.given)
        if metric:
            text += f" All lengths are in {unit}."
        if measures != "picture":
            text += f" {in_words(figure, unit)}"
        question: list[Part] = [
            TextPart(type="text", text="Look at the figure.\n"),
            ImagePart(type="image", image=drawn(figure, rng, labelled=measures != "text")),
            TextPart(type="text", text=f"\n{text}"),
        ]
        return Item(question=question, answer=shown(figure.asked.value), key=figure.kind)

"""The kinds of figures: each draws its numbers first, so that what is asked comes out exactly, and then its points.

What may be asked besides "length" and "angle": "area" and "perimeter" of the polygon through the points; "difference"
of the areas of two polygons, a "|" between them; of a circle given by its centre and a point on it, "circle" (its area)
and "round" (its circumference); of a sector given by a point, its centre and another point, "sector" (its area) and
"arc" (its length). The last four are asked as multiples of pi, so that answers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from palestra.envs.math import geometry_circles as circles
from palestra.envs.math import geometry_polygons as polygons
from palestra.envs.math import geometry_triangles as triangles
from palestra.envs.math.figures import Figure

Maker = Callable[[Random, int], Figure]

KINDS: Mapping[str, Maker] = {
    maker.__name__: maker
    for maker in (
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

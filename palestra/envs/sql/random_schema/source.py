"""A random schema as a source of databases and questions, with the same interface as a domain."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random

from palestra.envs.sql.domain import EASY, HARD, LEVELS, MEDIUM, Question, build_image, edge_draw, repeat_rows
from palestra.envs.sql.draw import Draw
from palestra.envs.sql.guard import Image
from palestra.envs.sql.random_schema.complex import HARD_FORMS
from palestra.envs.sql.random_schema.schema import Schema, make_schema
from palestra.envs.sql.random_schema.simple import EASY_FORMS, MEDIUM_FORMS
from palestra.seeding import child_seed

FORMS = {EASY: EASY_FORMS, MEDIUM: MEDIUM_FORMS, HARD: HARD_FORMS}


class RandomSchema:
    """The schema for a seed, its databases, and questions about them."""

    def __init__(self, seed: int, split: str | None) -> None:
        self.schema: Schema = make_schema(Random(child_seed(seed, "schema", split or "")), split)
        self.about = self.schema.about

    def build(self, seed: int, copy: int = 0, gold: str = "") -> Image:
        """Build the database for `seed`, or a copy, as `Domain.build` does."""
        rng, ddl = Random(child_seed(seed, "random", "facts", copy)), self.schema.ddl
        if copy < 2:
            return build_image(ddl, self.schema.fill(Draw(rng)))
        return build_image(ddl, repeat_rows(rng, ddl, self.schema.fill(edge_draw(rng, copy, gold))))

    def questions(self, rng: Random, level: str | None, seed: int) -> Iterator[Question]:  # noqa: ARG002  # as in `Domain`
        """Yield an endless sequence of random questions at a level."""
        while True:
            chosen = level or rng.choice(LEVELS)
            form = rng.choice(FORMS[chosen])(rng, self.schema)
            yield Question(
                text=form.text,
                gold=form.gold,
                alternative=form.alternative,
                ordered=form.ordered,
                level=chosen,
                key=(self.schema.ddl, form.text),
                split=self.schema.split,
            )


@lru_cache(maxsize=64)
def random_schema(seed: int, split: str | None) -> RandomSchema:
    return RandomSchema(seed, split)

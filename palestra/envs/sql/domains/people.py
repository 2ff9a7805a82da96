"""Names of people and places for the domains; within one database no two are the same."""

from __future__ import annotations

from random import Random

from palestra.envs.world.names import ENDINGS, MEN, WOMEN, plain_title, stem, stems

CITIES = ("Lisbon", "Porto", "Ghent", "Turin", "Graz", "Lund", "Bergen", "Leiden", "Cork", "Bilbao", "Brno", "Tartu")
TITLES = 10_000  # plain titles to draw from


def people(rng: Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        family = stem(rng.randrange(stems(2)), 2) + rng.choice(ENDINGS["family"])
        found[f"{rng.choice((*MEN, *WOMEN))} {family}"] = None
    return list(found)


def titles(rng: Random, count: int) -> list[str]:
    return [plain_title(number) for number in rng.sample(range(TITLES), count)]

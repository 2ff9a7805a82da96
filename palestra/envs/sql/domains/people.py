"""Names of people, cities and books for the domains. Each name is unique within a database."""

from __future__ import annotations

from random import Random

from palestra.envs.world.names import ENDINGS, MEN, WOMEN, plain_title, stem, stems

CITIES = ("Lisbon", "Porto", "Ghent", "Turin", "Graz", "Lund", "Bergen", "Leiden", "Cork", "Bilbao", "Brno", "Tartu")
TITLES = 10_000  # number of possible book titles


def people(rng: Random, count: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        family = stem(rng.randrange(stems(2)), 2) + rng.choice(ENDINGS["family"])
        names[f"{rng.choice((*MEN, *WOMEN))} {family}"] = None
    return list(names)


def titles(rng: Random, count: int) -> list[str]:
    return [plain_title(number) for number in rng.sample(range(TITLES), count)]

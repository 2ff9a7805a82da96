"""Generate a world's entities, their names and their relations from a seed and a number of pages.

Nothing is stored. The facts of a page are computed from its number with invertible permutations and splits and with
random bytes derived from the number (`World.random_bytes`). Generating a page takes the same time in a world of a
hundred pages as in a world of a million. The content of a page does not depend on the process or on the pages that
were generated before it.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import isqrt
from typing import NamedTuple

from palestra.envs.world import names
from palestra.envs.world.kinds import CREATORS, EVENTS, KINDS, ORGANISATIONS, OTHER_PROFESSIONS
from palestra.envs.world.shuffle import Permutation, Split
from palestra.errors import BadValue
from palestra.seeding import check_seed

MIN_PAGES, MAX_PAGES = 100, 1_000_000
NOW = 2000  # the year in which the encyclopedia was written
FIRST_BIRTH, SPAN = 1500, 380  # a family's first birth is in one of the SPAN years after FIRST_BIRTH
FAMILY = 8  # people per family
YOUNGEST_DEATH = 50  # minimum age at death in years; everything a person does happens before this age


class Date(NamedTuple):
    year: int
    month: int
    day: int


class World:
    """A fictional encyclopedia. Pages are numbered from 0, and the pages of each kind have consecutive numbers."""

    def __init__(self, seed: int = 0, pages: int = 1000) -> None:
        if isinstance(pages, bool) or not isinstance(pages, int) or not MIN_PAGES <= pages <= MAX_PAGES:
            raise BadValue(f"`pages` must be an integer from {MIN_PAGES} to {MAX_PAGES:,}, got {pages!r}")
        self.seed, self.pages = check_seed(seed), pages
        self._key = blake2b(f"world {self.seed} {pages}".encode(), digest_size=32).digest()
        self._hash = blake2b(key=self._key, digest_size=64)
        self.counts = _counts(pages)
        self.first: dict[str, int] = {}  # first page of each kind
        at = 0
        for kind in KINDS:
            self.first[kind] = at
            at += self.counts[kind]
        self._set_up()

    def __repr__(self) -> str:
        return f"World(seed={self.seed}, pages={self.pages})"

    def __reduce__(self) -> tuple[type[World], tuple[int, int]]:
        return World, (self.seed, self.pages)

    def _set_up(self) -> None:
        n = self.counts
        self.families = (n["person"] + FAMILY - 1) // FAMILY
        self.creators = max(1, n["work"] * 2 // 5)
        self.provinces_of = Split(n["province"], n["country"], self._sub("provinces"), least=2)
        self.cities_of = Split(n["city"], n["province"], self._sub("cities"), least=2)
        self.rivers_of = Split(n["river"], n["country"], self._sub("rivers"), least=1)
        self.mountains_of = Split(n["mountain"], n["country"], self._sub("mountains"), least=1)
        self.seats_of = Split(n["organisation"], n["city"], self._sub("seats"))
        self.homes_of = Split(self.families, n["city"], self._sub("homes"))  # families by city
        self.works_of = Split(n["work"], self.creators, self._sub("works"), least=1)
        self._home_order = Permutation(self.families, self._sub("home order"))
        self._creator_order = Permutation(n["person"], self._sub("makers"))
        self._founder_order = Permutation(n["person"], self._sub("founders"))
        self._climber_order = Permutation(n["person"], self._sub("climbers"))
        self._event_order = Permutation(n["city"], self._sub("events"))
        self._twin_order = Permutation(n["city"], self._sub("twins"))
        self._age_order = Permutation(self.families, self._sub("ages"))
        self._stem_at: dict[str, int] = {}
        used = 0
        for kind in ("country", "province", "city", "river", "mountain"):
            self._stem_at[kind] = used
            used += n[kind]
        self._stem_at["family"] = used
        self.stems_used = used + self.families
        self._syllables = names.syllables_for(self.stems_used)
        self._stem_order = Permutation(names.stems(self._syllables), self._sub("stems"))
        self._plain_order = Permutation(names.PLAIN_TITLES, self._sub("plain titles"))
        self._long_order = Permutation(names.LONG_TITLES, self._sub("long titles"))
        # Cache values that are needed repeatedly, for a page and for the pages that mention it.
        self.title = lru_cache(maxsize=200_000)(self._title)
        self.random_bytes = lru_cache(maxsize=30_000)(self._random_bytes)
        self.born = lru_cache(maxsize=50_000)(self._born)
        self.parents = lru_cache(maxsize=20_000)(self._parents)
        self.organisation_type = lru_cache(maxsize=50_000)(self._organisation_type)
        self.founded = lru_cache(maxsize=50_000)(self._founded)

    def _sub(self, name: str) -> bytes:
        return blake2b(name.encode(), key=self._key, digest_size=32).digest()

    def _random_bytes(self, purpose: str, number: int) -> bytes:
        """Return 64 pseudo-random bytes that depend on the seed, a purpose and a number."""
        digest = self._hash.copy()
        digest.update(f"{purpose} {number}".encode())
        return digest.digest()

    # Pages and titles

    def kind(self, page: int) -> str:
        """Return the kind of a page."""
        return self.place(page)[0]

    def place(self, page: int) -> tuple[str, int]:
        """Return the kind of a page and its number within that kind."""
        if not 0 <= page < self.pages:
            raise BadValue(f"`page` must be from 0 to {self.pages - 1}, got {page!r}")
        for kind in reversed(KINDS):
            if page >= self.first[kind]:
                return kind, page - self.first[kind]
        raise AssertionError(page)

    def page(self, kind: str, number: int) -> int:
        return self.first[kind] + number

    def _title(self, page: int) -> str:
        kind, number = self.place(page)
        if kind == "person":
            return f"{self.given_name(number)} {self.name('family', number // FAMILY)}"
        if kind == "work":
            half, odd = divmod(number, 2)
            if not odd and half < names.PLAIN_TITLES:
                return names.plain_title(self._plain_order(half))
            return names.long_title(self._long_order(number))
        if kind == "organisation":
            return ORGANISATIONS[self.organisation_type(number)][0].format(self.name("city", self.seat(number)))
        if kind == "event":
            return EVENTS[self.event_type(number)][0].format(self.name("city", self.event_city(number)))
        name = self.name(kind, number)
        return f"River {name}" if kind == "river" else f"Mount {name}" if kind == "mountain" else name

    def name(self, kind: str, number: int) -> str:
        """Return the invented name of a place or a family."""
        return self._word(kind, self._stem_at[kind] + number)

    def unused_name(self, kind: str, number: int) -> str:
        """Return a name that no entity in the world has; `number` must be below `stems_used`."""
        return self._word(kind, self.stems_used + number)

    def _word(self, kind: str, number: int) -> str:
        endings = names.ENDINGS[kind]
        ending = endings[self.random_bytes("ending", number)[0] % len(endings)]
        return names.stem(self._stem_order(number), self._syllables) + ending

    # Places

    def country_of_city(self, city: int) -> int:
        return self.provinces_of.parent(self.cities_of.parent(city))

    def province_capital(self, province: int) -> int:
        cities = self.cities_of.of(province)
        return cities[self.random_bytes("province", province)[0] % len(cities)]

    def capital(self, country: int) -> int:
        provinces = self.provinces_of.of(country)
        return self.province_capital(provinces[self.random_bytes("country", country)[0] % len(provinces)])

    def river_of(self, city: int) -> int | None:
        """Return the river that flows through a city, or None."""
        rivers = self.rivers_of.of(self.country_of_city(city))
        drawn = self.random_bytes("city river", city)
        return rivers[drawn[0] % len(rivers)] if rivers and drawn[1] >= 40 else None

    def cities_on(self, river: int) -> list[int]:
        provinces = self.provinces_of.of(self.rivers_of.parent(river))
        cities = range(self.cities_of.of(provinces[0])[0], self.cities_of.of(provinces[-1])[-1] + 1)
        return [city for city in cities if self.river_of(city) == river]

    def twin(self, city: int) -> int | None:
        """Return the twin city, or None. The relation is symmetric."""
        other = self._twin_order(city) ^ 1
        return self._twin_order.inverse(other) if other < self.counts["city"] else None

    # People

    def woman(self, person: int) -> bool:
        family, role = divmod(person, FAMILY)
        drawn = self.random_bytes("family", family)
        if role in (1, 3):  # married into the family
            return not self.woman(family * FAMILY + (0 if role == 1 else self._wed(drawn)))
        return bool(drawn[8 + role] & 1)

    def given_name(self, person: int) -> str:
        family, role = divmod(person, FAMILY)
        drawn = self.random_bytes("family", family)
        candidates = names.WOMEN if self.woman(person) else names.MEN
        # The names of family members are 13 list positions apart, so they all differ.
        return candidates[(drawn[0] + 13 * role) % len(candidates)]

    @staticmethod
    def _wed(drawn: bytes) -> int:
        """Return the role of the second-generation family member who married."""
        return 2 if drawn[1] & 1 else 4

    @staticmethod
    def _youngest(drawn: bytes) -> int:
        """Return the generation (2 or 3) of the last family member, or 0 for a relative with unknown parents."""
        return (2, 3, 3, 0)[drawn[2] & 3]

    def _existing(self, person: int) -> int | None:
        """Return the person, or None for a missing member of the last family, which may be incomplete."""
        return person if person < self.counts["person"] else None

    def _parents(self, person: int) -> tuple[int, int] | None:
        """Return the father and the mother, or None if they are unknown."""
        family, role = divmod(person, FAMILY)
        drawn = self.random_bytes("family", family)
        generation = {2: 2, 4: 2, 5: 3, 6: 3, 7: self._youngest(drawn)}.get(role, 0)
        if generation == 0:
            return None
        one, other = (0, 1) if generation == 2 else (self._wed(drawn), 3)
        first, second = family * FAMILY + one, family * FAMILY + other
        if self._existing(max(first, second)) is None:
            return None
        return (second, first) if self.woman(first) else (first, second)

    def spouse(self, person: int) -> int | None:
        family, role = divmod(person, FAMILY)
        wed = self._wed(self.random_bytes("family", family))
        other = {0: 1, 1: 0, wed: 3, 3: wed}.get(role)
        return None if other is None else self._existing(family * FAMILY + other)

    def children(self, person: int) -> list[int]:
        """Return the children in order of birth."""
        base = person - person % FAMILY
        members = [base + role for role in (2, 4, 5, 6, 7) if self._existing(base + role) is not None]
        children = (member for member in members if person in (self.parents(member) or ()))
        return sorted(children, key=lambda child: self.born(child))

    def _born(self, person: int) -> Date:
        family, role = divmod(person, FAMILY)
        drawn = self.random_bytes("person", person)
        month, day = 1 + drawn[0] % 12, 1 + drawn[1] % 28
        parents = self.parents(person)
        if parents is not None:
            # Siblings are born about three years apart, so that no two are born in the same year.
            position = {2: 0, 4: 1, 5: 0, 6: 1, 7: 2}[role]
            year = max(self.born(parent).year for parent in parents) + 22 + 3 * position + drawn[2] % 2
        elif role == 3:
            year = self.born(family * FAMILY + self._wed(self.random_bytes("family", family))).year + drawn[2] % 7 - 3
        elif role < 2:
            year = self._family_year(family) + drawn[2] % 5
        else:
            year = self._family_year(family) + 30 + drawn[2] % 20
        return Date(year, month, day)

    def _family_year(self, family: int) -> int:
        return FIRST_BIRTH + self._age_order(family) * SPAN // self.families

    def died(self, person: int) -> Date | None:
        """Return the date of death, or None if the person was alive when the encyclopedia was written."""
        drawn = self.random_bytes("person", person)
        year = self.born(person).year + YOUNGEST_DEATH + 1 + drawn[3] % 42
        return Date(year, 1 + drawn[4] % 12, 1 + drawn[5] % 28) if year < NOW else None

    def home(self, family: int) -> int:
        """Return the home city of a family."""
        return self.homes_of.parent(self._home_order(family))

    def birth_city(self, person: int) -> int | None:
        drawn = self.random_bytes("person", person)
        if drawn[6] < 18:
            return None  # unknown
        if drawn[6] < 100:
            return int.from_bytes(drawn[7:11], "big") % self.counts["city"]
        return self.home(person // FAMILY)

    def natives(self, city: int, most: int) -> list[int]:
        """Return up to `most` people who were born in a city."""
        natives: list[int] = []
        for position in self.homes_of.of(city):
            base = self._home_order.inverse(position) * FAMILY
            for person in range(base, min(base + FAMILY, self.counts["person"])):
                if self.birth_city(person) == city:
                    natives.append(person)
                    if len(natives) == most:
                        return natives
        return natives

    def person_born_around(self, year: int, chance: int) -> int:
        """Return a person born around that year or a few decades later. Callers must check the dates."""
        rank = (year - FIRST_BIRTH) * self.families // SPAN + chance % max(1, self.families // 40)
        family = self._age_order.inverse(min(max(rank, 0), self.families - 1))
        return min(family * FAMILY + chance // 7 % 5, self.counts["person"] - 1)

    def creator_rank(self, person: int) -> int | None:
        """Return a person's rank among the creators of works, or None."""
        rank = self._creator_order(person)
        return rank if rank < self.creators else None

    def creator(self, work: int) -> int:
        return self._creator_order.inverse(self.works_of.parent(work))

    def works_by(self, person: int) -> range:
        rank = self.creator_rank(person)
        return range(0) if rank is None else self.works_of.of(rank)

    def occupation(self, person: int) -> str:
        chance = self.random_bytes("person", person)[11]
        return (
            OTHER_PROFESSIONS[chance % len(OTHER_PROFESSIONS)]
            if self.creator_rank(person) is None
            else CREATORS[chance % len(CREATORS)][0]
        )

    # Works, organizations, events

    def work_type(self, work: int) -> str:
        chance = self.random_bytes("person", self.creator(work))[11]
        return CREATORS[chance % len(CREATORS)][1][self.random_bytes("work", work)[0] % 3]

    def work_year(self, work: int) -> int:
        """Return the year in which a work was completed. A creator's works are numbered in chronological order."""
        creator = self.creator(work)
        works = self.works_by(creator)
        step = max(1, 26 // len(works))
        position = works.index(work)
        return self.born(creator).year + 22 + min(position * step + self.random_bytes("work", work)[1] % step, 26)

    def seat(self, organisation: int) -> int:
        return self.seats_of.parent(organisation)

    def _organisation_type(self, organisation: int) -> int:
        city = self.seat(organisation)
        position = organisation - self.seats_of.of(city)[0]
        drawn = self.random_bytes("seats", city)
        start = drawn[0] if drawn[1] >= 110 else 0  # often start with type 0 to get many universities
        return (start + position) % len(ORGANISATIONS)

    def founder(self, organisation: int) -> int:
        return self._founder_order.inverse(organisation)

    def founded_by(self, person: int) -> int | None:
        """Return the organization that a person founded (at most one), or None."""
        rank = self._founder_order(person)
        return rank if rank < self.counts["organisation"] else None

    def _founded(self, organisation: int) -> int:
        return self.born(self.founder(organisation)).year + 25 + self.random_bytes("organisation", organisation)[0] % 22

    def event_city(self, event: int) -> int:
        return self._event_order.inverse(event)

    def event_in(self, city: int) -> int | None:
        rank = self._event_order(city)
        return rank if rank < self.counts["event"] else None

    def event_type(self, event: int) -> int:
        return self.random_bytes("event", event)[0] % len(EVENTS)

    def climber(self, mountain: int) -> int:
        """Return the first person who climbed a mountain."""
        return self._climber_order.inverse(mountain)


def _counts(pages: int) -> dict[str, int]:
    """Return the number of pages of each kind. All remaining pages are people."""
    countries = max(2, min(pages // 50, isqrt(pages) // 2))
    provinces = max(2 * countries, pages * 2 // 100)
    cities = max(2 * provinces + 2, pages * 9 // 100)
    counts = {
        "country": countries,
        "province": provinces,
        "city": cities,
        "river": max(countries, pages * 15 // 1000),
        "mountain": max(countries, pages // 100),
        "organisation": pages * 9 // 100,
        "event": min(cities, pages * 5 // 100),
        "work": pages * 22 // 100,
    }
    return {**counts, "person": pages - sum(counts.values())}

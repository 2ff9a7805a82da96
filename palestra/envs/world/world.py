"""A seed and a size -> a whole world: who and what there is, what it is called, who belongs to whom.

Nothing is stored. Every number of a page leads to its facts by arithmetic on numbers drawn for it alone
(`World.drawn`), by permutations and by splits that work both ways, so page i costs the same in a world of a hundred
pages and of a million, in any order and any process.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import isqrt
from typing import NamedTuple

from palestra.envs.world import names
from palestra.envs.world.kinds import EVENTS, KINDS, MAKERS, ORGANISATIONS, OTHERS
from palestra.envs.world.shuffle import Permutation, Split
from palestra.errors import BadValue
from palestra.seeding import check_seed

SMALLEST, LARGEST = 100, 1_000_000
NOW = 2000  # the year in which the encyclopaedia was written
FIRST_BIRTH, SPAN = 1500, 380  # the eldest of every family are born within these years
FAMILY = 8
YOUNGEST_DEATH = 50  # years; everything a person does is done before


class Date(NamedTuple):
    year: int
    month: int
    day: int


class World:
    """The encyclopaedia that `seed` and `pages` give. Pages are numbered from 0; a kind's pages stand in a row."""

    def __init__(self, seed: int = 0, pages: int = 1000) -> None:
        if isinstance(pages, bool) or not isinstance(pages, int) or not SMALLEST <= pages <= LARGEST:
            raise BadValue(f"a world has {SMALLEST} to {LARGEST:,} pages, got {pages!r}")
        self.seed, self.pages = check_seed(seed), pages
        self._key = blake2b(f"world {self.seed} {pages}".encode(), digest_size=32).digest()
        self._chance = blake2b(key=self._key, digest_size=64)
        self.counts = _counts(pages)
        self.first: dict[str, int] = {}  # page of a kind's number 0
        at = 0
        for kind in KINDS:
            self.first[kind] = at
            at += self.counts[kind]
        self._lay_out()

    def __repr__(self) -> str:
        return f"World(seed={self.seed}, pages={self.pages})"

    def __reduce__(self) -> tuple[type[World], tuple[int, int]]:
        return World, (self.seed, self.pages)

    def _lay_out(self) -> None:
        n = self.counts
        self.families = (n["person"] + FAMILY - 1) // FAMILY
        self.makers = max(1, n["work"] * 2 // 5)
        self.provinces_of = Split(n["province"], n["country"], self._sub("provinces"), least=2)
        self.cities_of = Split(n["city"], n["province"], self._sub("cities"), least=2)
        self.rivers_of = Split(n["river"], n["country"], self._sub("rivers"), least=1)
        self.mountains_of = Split(n["mountain"], n["country"], self._sub("mountains"), least=1)
        self.seats_of = Split(n["organisation"], n["city"], self._sub("seats"))
        self.homes_of = Split(self.families, n["city"], self._sub("homes"))  # families by city
        self.works_of = Split(n["work"], self.makers, self._sub("works"), least=1)
        self._home_order = Permutation(self.families, self._sub("home order"))
        self._maker_order = Permutation(n["person"], self._sub("makers"))
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
        # What is asked for again and again, by this page or by those that name it.
        self.title = lru_cache(maxsize=200_000)(self._title)
        self.drawn = lru_cache(maxsize=30_000)(self._drawn)
        self.born = lru_cache(maxsize=50_000)(self._born)
        self.parents = lru_cache(maxsize=20_000)(self._parents)
        self.organisation_type = lru_cache(maxsize=50_000)(self._organisation_type)
        self.founded = lru_cache(maxsize=50_000)(self._founded)

    def _sub(self, name: str) -> bytes:
        return blake2b(name.encode(), key=self._key, digest_size=32).digest()

    def _drawn(self, what: str, number: int) -> bytes:
        """64 bytes of chance for the thing of that name and number."""
        drawing = self._chance.copy()
        drawing.update(f"{what} {number}".encode())
        return drawing.digest()

    # Pages and titles

    def kind(self, page: int) -> str:
        """What the page is about."""
        return self.place(page)[0]

    def place(self, page: int) -> tuple[str, int]:
        """The kind of a page and its number among that kind."""
        if not 0 <= page < self.pages:
            raise BadValue(f"pages are numbered 0 to {self.pages - 1}, got {page!r}")
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
        """The invented word in a title: of a place, or a family's."""
        return self._word(kind, self._stem_at[kind] + number)

    def unused_name(self, kind: str, number: int) -> str:
        """A name of the same making that nothing in the world has; `number` below `stems_used`."""
        return self._word(kind, self.stems_used + number)

    def _word(self, kind: str, number: int) -> str:
        endings = names.ENDINGS[kind]
        ending = endings[self.drawn("ending", number)[0] % len(endings)]
        return names.stem(self._stem_order(number), self._syllables) + ending

    # Places

    def country_of_city(self, city: int) -> int:
        return self.provinces_of.parent(self.cities_of.parent(city))

    def province_capital(self, province: int) -> int:
        cities = self.cities_of.of(province)
        return cities[self.drawn("province", province)[0] % len(cities)]

    def capital(self, country: int) -> int:
        provinces = self.provinces_of.of(country)
        return self.province_capital(provinces[self.drawn("country", country)[0] % len(provinces)])

    def river_of(self, city: int) -> int | None:
        """The river a city lies on; one of its country's."""
        rivers = self.rivers_of.of(self.country_of_city(city))
        drawn = self.drawn("city river", city)
        return rivers[drawn[0] % len(rivers)] if rivers and drawn[1] >= 40 else None

    def cities_on(self, river: int) -> list[int]:
        provinces = self.provinces_of.of(self.rivers_of.parent(river))
        cities = range(self.cities_of.of(provinces[0])[0], self.cities_of.of(provinces[-1])[-1] + 1)
        return [city for city in cities if self.river_of(city) == river]

    def twin(self, city: int) -> int | None:
        """The partner of a city, whose partner it is."""
        other = self._twin_order(city) ^ 1
        return self._twin_order.inverse(other) if other < self.counts["city"] else None

    # People

    def woman(self, person: int) -> bool:
        family, role = divmod(person, FAMILY)
        drawn = self.drawn("family", family)
        if role in (1, 3):  # who married in
            return not self.woman(family * FAMILY + (0 if role == 1 else self._wed(drawn)))
        return bool(drawn[8 + role] & 1)

    def given_name(self, person: int) -> str:
        family, role = divmod(person, FAMILY)
        drawn = self.drawn("family", family)
        pool = names.WOMEN if self.woman(person) else names.MEN
        return pool[(drawn[0] + 13 * role) % len(pool)]  # 13 steps apart, so a family has no name twice

    @staticmethod
    def _wed(drawn: bytes) -> int:
        """Which of the second generation married."""
        return 2 if drawn[1] & 1 else 4

    @staticmethod
    def _youngest(drawn: bytes) -> int:
        """Generation of the last of a family: 2, 3, or 0, a relative of unknown parents."""
        return (2, 3, 3, 0)[drawn[2] & 3]

    def someone(self, person: int) -> int | None:
        """The person, where there is such a one: the last family may be incomplete."""
        return person if person < self.counts["person"] else None

    def _parents(self, person: int) -> tuple[int, int] | None:
        """Father and mother."""
        family, role = divmod(person, FAMILY)
        drawn = self.drawn("family", family)
        generation = {2: 2, 4: 2, 5: 3, 6: 3, 7: self._youngest(drawn)}.get(role, 0)
        if generation == 0:
            return None
        one, other = (0, 1) if generation == 2 else (self._wed(drawn), 3)
        first, second = family * FAMILY + one, family * FAMILY + other
        if self.someone(max(first, second)) is None:
            return None
        return (second, first) if self.woman(first) else (first, second)

    def spouse(self, person: int) -> int | None:
        family, role = divmod(person, FAMILY)
        wed = self._wed(self.drawn("family", family))
        other = {0: 1, 1: 0, wed: 3, 3: wed}.get(role)
        return None if other is None else self.someone(family * FAMILY + other)

    def children(self, person: int) -> list[int]:
        """In the order of their births."""
        base = person - person % FAMILY
        own = [base + role for role in (2, 4, 5, 6, 7) if self.someone(base + role) is not None]
        return sorted((one for one in own if person in (self.parents(one) or ())), key=lambda one: self.born(one))

    def _born(self, person: int) -> Date:
        family, role = divmod(person, FAMILY)
        drawn = self.drawn("person", person)
        month, day = 1 + drawn[0] % 12, 1 + drawn[1] % 28
        parents = self.parents(person)
        if parents is not None:
            # Siblings are born three years apart, so that no two share a year.
            place = {2: 0, 4: 1, 5: 0, 6: 1, 7: 2}[role]
            year = max(self.born(parent).year for parent in parents) + 22 + 3 * place + drawn[2] % 2
        elif role == 3:
            year = self.born(family * FAMILY + self._wed(self.drawn("family", family))).year + drawn[2] % 7 - 3
        elif role < 2:
            year = self._family_year(family) + drawn[2] % 5
        else:
            year = self._family_year(family) + 30 + drawn[2] % 20
        return Date(year, month, day)

    def _family_year(self, family: int) -> int:
        return FIRST_BIRTH + self._age_order(family) * SPAN // self.families

    def died(self, person: int) -> Date | None:
        """None: still alive when the encyclopaedia was written."""
        drawn = self.drawn("person", person)
        year = self.born(person).year + YOUNGEST_DEATH + 1 + drawn[3] % 42
        return Date(year, 1 + drawn[4] % 12, 1 + drawn[5] % 28) if year < NOW else None

    def home(self, family: int) -> int:
        """The city a family comes from."""
        return self.homes_of.parent(self._home_order(family))

    def birth_city(self, person: int) -> int | None:
        drawn = self.drawn("person", person)
        if drawn[6] < 18:
            return None  # nobody wrote it down
        if drawn[6] < 100:
            return int.from_bytes(drawn[7:11], "big") % self.counts["city"]
        return self.home(person // FAMILY)

    def natives(self, city: int, most: int) -> list[int]:
        """Some people who were born in a city."""
        found: list[int] = []
        for place in self.homes_of.of(city):
            base = self._home_order.inverse(place) * FAMILY
            for person in range(base, min(base + FAMILY, self.counts["person"])):
                if self.birth_city(person) == city:
                    found.append(person)
                    if len(found) == most:
                        return found
        return found

    def of_about(self, year: int, chance: int) -> int:
        """Somebody born about that year or some decades later; who asks must look at the dates."""
        rank = (year - FIRST_BIRTH) * self.families // SPAN + chance % max(1, self.families // 40)
        family = self._age_order.inverse(min(max(rank, 0), self.families - 1))
        return min(family * FAMILY + chance // 7 % 5, self.counts["person"] - 1)

    def maker_rank(self, person: int) -> int | None:
        """The place of a person among those who make works, if that is one."""
        rank = self._maker_order(person)
        return rank if rank < self.makers else None

    def maker(self, work: int) -> int:
        return self._maker_order.inverse(self.works_of.parent(work))

    def works_by(self, person: int) -> range:
        rank = self.maker_rank(person)
        return range(0) if rank is None else self.works_of.of(rank)

    def occupation(self, person: int) -> str:
        chance = self.drawn("person", person)[11]
        return OTHERS[chance % len(OTHERS)] if self.maker_rank(person) is None else MAKERS[chance % len(MAKERS)][0]

    # Works, organisations, events

    def work_type(self, work: int) -> str:
        chance = self.drawn("person", self.maker(work))[11]
        return MAKERS[chance % len(MAKERS)][1][self.drawn("work", work)[0] % 3]

    def work_year(self, work: int) -> int:
        """In the maker's life, later for later works."""
        maker = self.maker(work)
        works = self.works_by(maker)
        step = max(1, 26 // len(works))
        place = works.index(work)
        return self.born(maker).year + 22 + min(place * step + self.drawn("work", work)[1] % step, 26)

    def seat(self, organisation: int) -> int:
        return self.seats_of.parent(organisation)

    def _organisation_type(self, organisation: int) -> int:
        city = self.seat(organisation)
        place = organisation - self.seats_of.of(city)[0]
        drawn = self.drawn("seats", city)
        begin = drawn[0] if drawn[1] >= 110 else 0  # universities are what people are asked about most
        return (begin + place) % len(ORGANISATIONS)

    def founder(self, organisation: int) -> int:
        return self._founder_order.inverse(organisation)

    def founded_by(self, person: int) -> int | None:
        """The organisation a person founded; nobody founded two."""
        rank = self._founder_order(person)
        return rank if rank < self.counts["organisation"] else None

    def _founded(self, organisation: int) -> int:
        return self.born(self.founder(organisation)).year + 25 + self.drawn("organisation", organisation)[0] % 22

    def event_city(self, event: int) -> int:
        return self._event_order.inverse(event)

    def event_in(self, city: int) -> int | None:
        rank = self._event_order(city)
        return rank if rank < self.counts["event"] else None

    def event_type(self, event: int) -> int:
        return self.drawn("event", event)[0] % len(EVENTS)

    def climber(self, mountain: int) -> int:
        """Who was first at the top."""
        return self._climber_order.inverse(mountain)


def _counts(pages: int) -> dict[str, int]:
    """How many pages of each kind; people are what is left."""
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

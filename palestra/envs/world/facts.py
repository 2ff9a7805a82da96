"""Compute the facts of a page as a mapping from relation names to values.

Pages are represented as `Ref`, dates as `Date` and lists as tuples. The mapping omits unknown facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from palestra.envs.world.kinds import EVENTS, ORGANISATIONS
from palestra.envs.world.world import FAMILY, Date, World

Facts = Mapping[str, Any]


class Ref(NamedTuple):
    """Reference to a page, used as the value of a fact."""

    page: int


class Dated(NamedTuple):
    """Reference to a page with its year, used in lists of works."""

    page: int
    year: int


GOVERNMENTS = ("kingdom", "republic", "federation", "grand duchy", "principality", "commonwealth")
CURRENCIES = (
    "crown", "florin", "thaler", "ducat", "mark", "shilling", "guilder", "denar", "talent", "livre", "penny", "real",
)  # fmt: skip
LANGUAGE_ENDINGS = ("ish", "ese", "an", "ic")
GOODS = (
    "amber", "apples", "barley", "beer", "bricks", "cheese", "copper", "cork", "flax", "glass", "granite", "honey",
    "hops", "iron", "lace", "leather", "linen", "marble", "oats", "paper", "pearls", "porcelain", "rye", "saffron",
    "salt", "silk", "silver", "slate", "tea", "timber", "tin", "wheat", "wine", "wool",
)  # fmt: skip


def facts_of(world: World, page: int) -> Facts:
    """Return the facts stated in a page's article."""
    kind, number = world.place(page)
    return _KINDS[kind](world, number)


def _number(drawn: bytes, at: int, count: int) -> int:
    """Convert four of the random bytes to a number below `count`."""
    return int.from_bytes(drawn[at : at + 4], "big") % count


def _country(world: World, country: int) -> Facts:
    drawn = world.random_bytes("country facts", country)
    provinces = world.provinces_of.of(country)
    rivers, mountains = world.rivers_of.of(country), world.mountains_of.of(country)
    count = world.counts["country"]
    stem = world.name("country", country).rstrip("aeiou")
    facts: dict[str, Any] = {
        "government": GOVERNMENTS[drawn[0] % len(GOVERNMENTS)],
        "capital": Ref(world.page("city", world.capital(country))),
        "founded_year": 1000 + _number(drawn, 1, 450),
        "language": stem + LANGUAGE_ENDINGS[drawn[5] % len(LANGUAGE_ENDINGS)],
        "currency": CURRENCIES[drawn[6] % len(CURRENCIES)],
        "area": sum(province_area(world, province) for province in provinces),
        "provinces": tuple(Ref(world.page("province", province)) for province in provinces),
    }
    if count > 2:  # the countries form a ring, in which each country borders the previous and the next country
        adjacent = ((country - 1) % count, (country + 1) % count)
        facts["neighbours"] = tuple(Ref(world.page("country", other)) for other in adjacent)
    if rivers:
        facts["longest_river"] = Ref(
            world.page("river", max(rivers, key=lambda river: (river_length(world, river), -river)))
        )
    if mountains:
        highest = max(mountains, key=lambda peak: (mountain_height(world, peak), -peak))
        facts["highest_mountain"] = Ref(world.page("mountain", highest))
    return facts


def province_area(world: World, province: int) -> int:
    return 900 + _number(world.random_bytes("province facts", province), 0, 60_000)


def _province(world: World, province: int) -> Facts:
    drawn = world.random_bytes("province facts", province)
    return {
        "country": Ref(world.page("country", world.provinces_of.parent(province))),
        "capital": Ref(world.page("city", world.province_capital(province))),
        "area": province_area(world, province),
        "product": GOODS[drawn[4] % len(GOODS)],
        "cities": tuple(Ref(world.page("city", city)) for city in world.cities_of.of(province)),
    }


def _city(world: World, city: int) -> Facts:
    drawn = world.random_bytes("city facts", city)
    facts: dict[str, Any] = {
        "province": Ref(world.page("province", world.cities_of.parent(city))),
        "founded_year": 850 + _number(drawn, 0, 600),
        "population": 3_000 + _number(drawn, 4, 40_000) * (1 + drawn[8] % 12),
        "elevation": 2 + _number(drawn, 9, 900),
        "trade": GOODS[drawn[13] % len(GOODS)],
    }
    river, twin, event = world.river_of(city), world.twin(city), world.event_in(city)
    if river is not None:
        facts["river"] = Ref(world.page("river", river))
    if twin is not None:
        facts["twin"] = Ref(world.page("city", twin))
    if event is not None:
        facts["event"] = Ref(world.page("event", event))
    natives = world.natives(city, 3)
    if natives:
        facts["natives"] = tuple(Ref(world.page("person", person)) for person in natives)
    seats = world.seats_of.of(city)
    if seats:
        facts["organisations"] = tuple(Ref(world.page("organisation", organisation)) for organisation in seats)
    return facts


def river_length(world: World, river: int) -> int:
    return 40 + _number(world.random_bytes("river facts", river), 0, 2_400)


def _river(world: World, river: int) -> Facts:
    drawn = world.random_bytes("river facts", river)
    country = world.rivers_of.parent(river)
    mountains = world.mountains_of.of(country)
    facts: dict[str, Any] = {
        "country": Ref(world.page("country", country)),
        "length": river_length(world, river),
    }
    if mountains and drawn[4] >= 30:
        facts["source"] = Ref(world.page("mountain", mountains[drawn[5] % len(mountains)]))
    cities = world.cities_on(river)
    if cities:
        facts["cities"] = tuple(Ref(world.page("city", city)) for city in cities)
    return facts


def mountain_height(world: World, mountain: int) -> int:
    return 700 + _number(world.random_bytes("mountain facts", mountain), 0, 6_200)


def _mountain(world: World, mountain: int) -> Facts:
    drawn = world.random_bytes("mountain facts", mountain)
    climber = world.climber(mountain)
    return {
        "country": Ref(world.page("country", world.mountains_of.parent(mountain))),
        "height": mountain_height(world, mountain),
        "first_climber": Ref(world.page("person", climber)),
        "first_climbed": world.born(climber).year + 21 + drawn[4] % 25,
    }


def _organisation(world: World, organisation: int) -> Facts:
    drawn = world.random_bytes("organisation facts", organisation)
    return {
        "type": ORGANISATIONS[world.organisation_type(organisation)][1],
        "founded_year": world.founded(organisation),
        "founder": Ref(world.page("person", world.founder(organisation))),
        "seat": Ref(world.page("city", world.seat(organisation))),
        "members": 20 + _number(drawn, 0, 4_000),
    }


def _event(world: World, event: int) -> Facts:
    drawn = world.random_bytes("event facts", event)
    year = 1540 + _number(drawn, 0, 440)
    facts: dict[str, Any] = {
        "type": EVENTS[world.event_type(event)][1],
        "date": Date(year, 1 + drawn[4] % 12, 1 + drawn[5] % 28),
        "place": Ref(world.page("city", world.event_city(event))),
        "days": 1 + _number(drawn, 6, 90),
    }
    for at in range(10, 34, 4):
        leader = world.person_born_around(year - 42, _number(drawn, at, 1 << 30))
        if 25 <= year - world.born(leader).year <= 50:
            facts["leader"] = Ref(world.page("person", leader))
            break
    return facts


def _work(world: World, work: int) -> Facts:
    drawn = world.random_bytes("work facts", work)
    creator, year = world.creator(work), world.work_year(work)
    facts: dict[str, Any] = {
        "type": world.work_type(work),
        "creator": Ref(world.page("person", creator)),
        "year": year,
    }
    if drawn[0] < 170:
        facts["setting"] = Ref(world.page("city", _number(drawn, 1, world.counts["city"])))
    teacher = _teacher(world, creator)
    honoured = (world.spouse(creator), teacher)[drawn[5] % 2]
    if honoured is not None and drawn[6] < 150:
        facts["dedicatee"] = Ref(world.page("person", honoured))
    for at in range(8, 28, 4):
        patron = _number(drawn, at, world.counts["organisation"])
        if world.founded(patron) < year:
            facts["patron"] = Ref(world.page("organisation", patron))
            break
    return facts


def _teacher(world: World, person: int) -> int | None:
    """Return the person's teacher, who was born 10 to 33 years earlier, or None."""
    drawn = world.random_bytes("teacher", person)
    if drawn[0] < 90:
        return None
    born = world.born(person).year
    for at in range(1, 17, 4):
        teacher = world.person_born_around(born - 40, _number(drawn, at, 1 << 30))
        if 10 <= born - world.born(teacher).year <= 33 and teacher // FAMILY != person // FAMILY:
            return teacher
    return None


def _university(world: World, person: int) -> int | None:
    """Return a university that existed when the person was seventeen, or None."""
    drawn = world.random_bytes("study", person)
    born = world.born(person).year
    cities = [world.home(person // FAMILY)] + [_number(drawn, at, world.counts["city"]) for at in range(1, 25, 4)]
    for city in cities:
        for organisation in world.seats_of.of(city):
            if world.organisation_type(organisation) == 0 and world.founded(organisation) <= born + 17:
                return organisation
    return None


def _person(world: World, person: int) -> Facts:
    drawn = world.random_bytes("person facts", person)
    facts: dict[str, Any] = {
        "birth_date": world.born(person),
        "occupation": world.occupation(person),
        "woman": world.woman(person),
        "surname": world.name("family", person // FAMILY),
    }
    died = world.died(person)
    if died is not None:
        facts["death_date"] = died
        if drawn[0] >= 50:
            city = world.home(person // FAMILY) if drawn[1] < 90 else _number(drawn, 2, world.counts["city"])
            facts["death_city"] = Ref(world.page("city", city))
    pages = {"birth_city": ("city", world.birth_city(person)), "spouse": ("person", world.spouse(person))}
    parents = world.parents(person)
    if parents is not None:
        pages |= {"father": ("person", parents[0]), "mother": ("person", parents[1])}
    pages["teacher"] = ("person", _teacher(world, person))
    pages["university"] = ("organisation", _university(world, person))
    pages["organisation"] = ("organisation", world.founded_by(person))
    facts |= {name: Ref(world.page(kind, number)) for name, (kind, number) in pages.items() if number is not None}
    children = world.children(person)
    if children:
        facts["children"] = tuple(Ref(world.page("person", child)) for child in children)
    works = world.works_by(person)
    if works:
        facts["works"] = tuple(Dated(world.page("work", work), world.work_year(work)) for work in works)
    return facts


_KINDS: Mapping[str, Callable[[World, int], Facts]] = {
    "country": _country,
    "province": _province,
    "city": _city,
    "river": _river,
    "mountain": _mountain,
    "organisation": _organisation,
    "event": _event,
    "work": _work,
    "person": _person,
}

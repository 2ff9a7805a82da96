"""Tasks that find something in the encyclopedia: facts, comparisons, pages, and questions without an answer."""

from __future__ import annotations

from palestra.envs.web.encyclopedia.app import ENCYCLOPEDIA
from palestra.envs.web.encyclopedia.content import Entry, library
from palestra.envs.web.suite.markup import path
from palestra.envs.web.suite.tasks import NOT_POSSIBLE, Click, Draw, Enter, Move, Stop, Task, template

SITE = ENCYCLOPEDIA.name


def find(title: str) -> tuple[Move, ...]:
    """Return the moves that open an article."""
    return Enter("Search", title), Click(title)


def address(title: str) -> str:
    return ENCYCLOPEDIA.url + path("wiki", title)[1:]


def readable(draw: Draw, kind: str) -> list[Entry]:
    """Return the articles of a kind that were not vandalized."""
    content = library(draw.data_seed)
    return [entry for entry in content.by_kind[kind] if entry.title not in content.vandalized]


def _number(value: int) -> tuple[str, ...]:
    return (str(value),)


@template(SITE, level=1)
def population(draw: Draw) -> Task:
    city, other = draw.pair(readable(draw, "city"))
    people = city.facts["population"]
    return Task(
        intent=f"What is the population of {city.title}? Answer with a number.",
        answer=_number(people),
        expert=(*find(city.title), Stop(str(people))),
        wrong=(*find(other.title), Stop(str(other.facts["population"]))),
        evidence=(f"{people:,}",),
    )


@template(SITE, level=1)
def founder(draw: Draw) -> Task:
    content = library(draw.data_seed)
    first, second = draw.pair(readable(draw, "organisation"))
    name = content.of(first, "founder").title
    return Task(
        intent=f"Who founded the {first.title}?",
        answer=(name,),
        expert=(*find(first.title), Stop(name)),
        wrong=(*find(second.title), Stop(content.of(second, "founder").title)),
        evidence=(name,),
    )


@template(SITE, level=1, held_out=True)
def mountain_height(draw: Draw) -> Task:
    mountain = draw.choice(readable(draw, "mountain"))
    height = mountain.facts["height"]
    return Task(
        intent=f"How high is {mountain.title}, in meters? Answer with a number.",
        answer=_number(height),
        expert=(*find(mountain.title), Stop(str(height))),
        wrong=(*find(mountain.title), Stop(str(mountain.facts["first_climbed"]))),
        evidence=(f"{height:,}",),
    )


@template(SITE, level=1)
def open_article(draw: Draw) -> Task:
    kind = draw.choice(("city", "river", "event", "work"))
    entry, other = draw.pair(readable(draw, kind))
    return Task(
        intent=f"Open the article about {entry.title}, and stop there.",
        url=address(entry.title),
        expert=(*find(entry.title), Stop()),
        wrong=(*find(other.title), Stop()),
    )


@template(SITE, level=2)
def capital_population(draw: Draw) -> Task:
    content = library(draw.data_seed)
    country = draw.choice(
        entry for entry in readable(draw, "country") if content.of(entry, "capital").title not in content.vandalized
    )
    capital = content.of(country, "capital")
    cities = [
        entry for entry in content.by_kind["city"] if content.of(content.of(entry, "province"), "country") == country
    ]
    other = max((city for city in cities if city != capital), key=lambda city: city.facts["population"])
    people = capital.facts["population"]
    return Task(
        intent=f"What is the population of the capital of {country.title}? Answer with a number.",
        answer=_number(people),
        expert=(*find(country.title), Click(capital.title), Stop(str(people))),
        wrong=(*find(other.title), Stop(str(other.facts["population"]))),
        evidence=(capital.title, f"{people:,}"),
    )


@template(SITE, level=2)
def higher_mountain(draw: Draw) -> Task:
    low, high = sorted(draw.pair(readable(draw, "mountain")), key=lambda entry: entry.facts["height"])
    names = sorted((low.title, high.title))
    return Task(
        intent=f"Which mountain is higher, {names[0]} or {names[1]}? Answer with its name.",
        answer=(high.title, high.title.removeprefix("Mount ")),
        expert=(*find(low.title), *find(high.title), Stop(high.title)),
        wrong=(*find(low.title), Stop(low.title)),
        evidence=(f"{low.facts['height']:,}", f"{high.facts['height']:,}"),
    )


@template(SITE, level=2)
def works_listed(draw: Draw) -> Task:
    person = draw.choice(entry for entry in readable(draw, "person") if len(entry.facts.get("works", ())) > 1)
    works = [library(draw.data_seed).entries[work.page] for work in person.facts["works"]]
    return Task(
        intent=f"How many works by {person.title} does the article about {person.title} list? Answer with a number.",
        answer=_number(len(works)),
        expert=(*find(person.title), Stop(str(len(works)))),
        wrong=(*find(person.title), Stop(str(len(works) - 1))),
        evidence=tuple(work.title for work in works),
    )


@template(SITE, level=2)
def category_size(draw: Draw) -> Task:
    content = library(draw.data_seed)
    kind, name = draw.choice((("city", "Cities"), ("work", "Works"), ("river", "Rivers"), ("event", "Events")))
    count = len(content.by_kind[kind])
    listed = min(count, 50)  # the page shows at most 50 titles
    world = content.by_kind["country"][0].title
    return Task(
        intent=f"How many articles are there in the category {name}, in the encyclopedia that describes {world}? "
        "Answer with a number.",
        answer=_number(count),
        expert=(Click(name), Stop(str(count))),
        wrong=(Click(name), Stop(str(listed if listed < count else count + 1))),
        evidence=(f"{count} articles",),
    )


@template(SITE, level=2)
def no_such_city(draw: Draw) -> Task:
    content = library(draw.data_seed)
    name = content.world.unused_name("city", draw.rng.randrange(content.world.stems_used))
    other = draw.choice(readable(draw, "city"))
    return Task(
        intent=f"What is the population of the city of {name}? Answer with a number.",
        answer=(NOT_POSSIBLE,),
        expert=(Enter("Search", name), Stop(NOT_POSSIBLE)),
        wrong=(Enter("Search", name), *find(other.title), Stop(str(other.facts["population"]))),
        evidence=("No articles found.",),
    )


@template(SITE, level=2, held_out=True)
def year_of_death(draw: Draw) -> Task:
    people = [entry for entry in readable(draw, "person") if "death_date" not in entry.facts]
    person = draw.choice(people or readable(draw, "person"))
    died = person.facts.get("death_date")
    answer = NOT_POSSIBLE if died is None else str(died.year)
    return Task(
        intent=f"In which year did {person.title} die? If the encyclopedia does not say so, answer N/A.",
        answer=(answer,),
        expert=(*find(person.title), Stop(answer)),
        wrong=(*find(person.title), Stop(str(person.facts["birth_date"].year))),
        evidence=(str((died or person.facts["birth_date"]).year),),
    )


@template(SITE, level=3)
def founders_birthplace(draw: Draw) -> Task:
    content = library(draw.data_seed)
    choices = []
    for entry in readable(draw, "organisation"):
        person = content.of(entry, "founder")
        if "birth_city" in person.facts:
            city = content.of(person, "birth_city")
            if not {person.title, city.title} & content.vandalized.keys() and city != content.of(entry, "seat"):
                choices.append((entry, person, city))
    entry, person, city = draw.choice(choices)
    people = city.facts["population"]
    seat = content.of(entry, "seat")
    return Task(
        intent=f"What is the population of the city in which the founder of the {entry.title} was born? "
        "Answer with a number.",
        answer=_number(people),
        expert=(*find(entry.title), Click(person.title), Click(city.title), Stop(str(people))),
        wrong=(*find(entry.title), Click(seat.title), Stop(str(seat.facts["population"]))),
        evidence=(person.title, city.title, f"{people:,}"),
    )


@template(SITE, level=3)
def largest_city(draw: Draw) -> Task:
    content = library(draw.data_seed)
    province = draw.choice(
        entry
        for entry in readable(draw, "province")
        if all(content.entries[city.page].title not in content.vandalized for city in entry.facts["cities"])
    )
    cities = [content.entries[city.page] for city in province.facts["cities"]]
    order = sorted(cities, key=lambda city: city.facts["population"])
    visits: list[Move] = []
    for city in cities:
        visits += [*find(province.title), Click(city.title)]
    return Task(
        intent=f"Which city in the province {province.title} has the largest population? Answer with its name.",
        answer=(order[-1].title,),
        expert=(*visits, Stop(order[-1].title)),
        wrong=(*find(province.title), Click(order[0].title), Stop(order[0].title)),
        evidence=tuple(f"{city.facts['population']:,}" for city in cities),
    )


@template(SITE, level=3, held_out=True)
def open_birthplace(draw: Draw) -> Task:
    content = library(draw.data_seed)
    work = draw.choice(
        entry
        for entry in readable(draw, "work")
        if "birth_city" in content.of(entry, "creator").facts
        and content.of(entry, "creator").title not in content.vandalized
    )
    creator = content.of(work, "creator")
    city = content.of(creator, "birth_city")
    return Task(
        intent=f"Open the article about the city in which the creator of the {work.facts['type']} {work.title} "
        "was born, and stop there.",
        url=address(city.title),
        expert=(*find(work.title), Click(creator.title), Click(city.title), Stop()),
        wrong=(*find(work.title), Click(creator.title), Stop()),
        evidence=(creator.title, city.title),
    )

"""Tasks on both sites: institutions that the encyclopedia describes and the map shows."""

from __future__ import annotations

from palestra.envs.web.encyclopedia.app import ENCYCLOPEDIA
from palestra.envs.web.encyclopedia.content import USER, Entry, library
from palestra.envs.web.encyclopedia.reading import find as find_article
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.tasks import Choose, Click, Draw, Fill, Goto, Move, Stop, Task, template
from palestra.envs.web.town.app import TOWN
from palestra.envs.web.town.content import LISTS, Place, Town, town
from palestra.envs.web.town.tasks import ask_route, find, minutes, route_of

BOTH = (ENCYCLOPEDIA.name, TOWN.name)


def _institutions(draw: Draw) -> list[tuple[Entry, Place]]:
    """Return the institutions whose articles can be read, with their places."""
    content, books = town(draw.data_seed), library(draw.data_seed)
    places = {place.name: place for place in content.places}
    return [(entry, places[entry.title]) for entry in content.institutions if entry.title not in books.vandalized]


def _two(draw: Draw) -> tuple[tuple[Entry, Place], tuple[Entry, Place]]:
    return draw.pair(_institutions(draw))


def _start(draw: Draw, content: Town, *ends: Place) -> Place:
    """Return a place from which the ways to all the others take different times."""
    for _ in range(100):
        start = draw.choice(content.places)
        times = [route_of(content, start, end, "Walking").minutes for end in ends]
        if len({0, *times}) == len(times) + 1:
            return start
    raise ValueError("the places of this town are too close to each other")


@template(*BOTH, level=3)
def walk_to_founded(draw: Draw) -> Task:
    content, books = town(draw.data_seed), library(draw.data_seed)
    (entry, place), (_, other) = _two(draw)
    founder = books.of(entry, "founder").title
    start = _start(draw, content, place, other)
    time = route_of(content, start, place, "Walking").minutes
    mistaken = route_of(content, start, other, "Walking").minutes
    city = content.city.title
    looked: tuple[Move, ...] = (*find_article(city), Click(entry.title), Goto(TOWN.url))
    return Task(
        intent=f"How many minutes does it take to walk from the {start.name} to the institution in {city} that "
        f"{founder} founded? Answer with a number.",
        answer=minutes(time),
        expert=(*looked, *ask_route(start, place, "Walking"), Stop(str(time))),
        wrong=(*looked, *ask_route(start, other, "Walking"), Stop(str(mistaken))),
        evidence=(founder, f"{time} min"),
    )


@template(*BOTH, level=3)
def post_address(draw: Draw) -> Task:
    (entry, place), (_, other) = _two(draw)
    words = f"It is at {place.address}."
    write: tuple[Move, ...] = (Goto(ENCYCLOPEDIA.url), *find_article(entry.title), Click("Talk"))
    insertion = "INSERT INTO message (title, author, text) VALUES (?, ?, ?)"
    return Task(
        intent=f'Look up the address of the {entry.title} on the map, and post the message "It is at ADDRESS." with '
        "the address on the talk page of its article in the encyclopedia.",
        changes=(Change(ENCYCLOPEDIA.name, insertion, (entry.title, USER, words)),),
        expert=(Goto(TOWN.url), *find(place), *write, Fill("Message", words), Click("Post"), Stop()),
        wrong=(
            *(Goto(TOWN.url), *find(other), *write),
            *(Fill("Message", f"It is at {other.address}."), Click("Post"), Stop()),
        ),
        evidence=(place.address,),
    )


@template(*BOTH, level=3, held_out=True)
def save_oldest(draw: Draw) -> Task:
    content = town(draw.data_seed)
    order = sorted(_institutions(draw), key=lambda pair: pair[0].facts["founded_year"])
    name = draw.choice(name for name in LISTS if (name, order[0][1].name) not in content.saved)
    reads = [move for entry, _ in order for move in (*find_article(content.city.title), Click(entry.title))]
    ends: tuple[Move, ...] = (Choose("List", name), Click("Save"), Stop())
    return Task(
        intent=f"According to the encyclopedia, which institution in {content.city.title} was founded first? "
        f"Consider only those whose articles state the year, and save the institution on the map in the list {name}.",
        changes=(Change(TOWN.name, "INSERT INTO saved VALUES (?, ?)", (name, order[0][1].name)),),
        expert=(*reads, Goto(TOWN.url), *find(order[0][1]), *ends),
        wrong=(Goto(TOWN.url), *find(order[-1][1]), *ends),
        evidence=tuple(str(entry.facts["founded_year"]) for entry, _ in order),
    )

"""Table nouns and column descriptions for random schemas.

A theme has nouns for four roles: a place, a unit (which belongs to a place), an event (which belongs to a unit) and a
person (who is assigned to units). Every sixth theme is held out for the test split, so that its tables are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PLACE, UNIT, EVENT, PERSON = "place", "unit", "event", "person"


class Theme(NamedTuple):
    places: tuple[str, ...]
    units: tuple[str, ...]
    events: tuple[str, ...]
    persons: tuple[str, ...]


def _theme(places: str, units: str, events: str, persons: str) -> Theme:
    return Theme(tuple(places.split()), tuple(units.split()), tuple(events.split()), tuple(persons.split()))


THEMES = (
    _theme("harbor pier shipyard", "ferry barge tugboat", "crossing inspection repair", "captain pilot mechanic"),
    _theme("museum gallery archive", "painting sculpture manuscript", "restoration appraisal loan", "curator restorer"),
    _theme("farm ranch estate", "tractor harvester barn", "rental breakdown service", "farmer technician driver"),
    _theme("theater studio cinema", "play film musical", "rehearsal screening review", "actor director composer"),
    _theme("vineyard cellar winery", "wine cask blend", "tasting bottling shipment", "winemaker critic taster"),
    _theme("stadium arena club", "team squad league", "training tournament audit", "coach scout physician"),
    _theme("factory plant mill", "machine robot press", "shutdown calibration overhaul", "engineer foreman operator"),
    _theme("observatory institute", "telescope sensor antenna", "observation survey test", "astronomer analyst"),
    _theme("zoo sanctuary aquarium", "animal enclosure habitat", "feeding treatment transfer", "keeper veterinarian"),
    _theme("railway depot tramway", "train wagon locomotive", "journey delay cleaning", "conductor dispatcher"),
    _theme("newspaper magazine", "supplement edition cartoon", "interview correction campaign", "editor reporter"),
    _theme("nursery greenhouse garden", "flowerbed hedge orchard", "watering pruning harvest", "gardener botanist"),
    _theme("hotel resort lodge", "suite cabin chalet", "booking complaint renovation", "receptionist cleaner guide"),
    _theme("mine quarry refinery", "shaft tunnel conveyor", "excavation collapse measurement", "miner geologist"),
    _theme("bakery restaurant cafe", "recipe menu dessert", "delivery contest evaluation", "baker chef waiter"),
    _theme("airfield heliport hangar", "glider balloon drone", "flight checkup rescue", "aviator instructor"),
    _theme("workshop foundry smithy", "tool mold furnace", "casting welding polishing", "apprentice smith"),
    _theme("district municipality county", "bridge road canal", "closure construction accident", "planner surveyor"),
    _theme("charity foundation agency", "project program initiative", "donation sponsorship grant", "volunteer donor"),
    _theme("clinic pharmacy hospice", "device scanner ambulance", "examination emergency refill", "nurse surgeon"),
    _theme("academy college seminar", "course thesis lecture", "exam excursion debate", "lecturer tutor mentor"),
    _theme("warehouse terminal outlet", "pallet container crate", "pickup dispatch stocktaking", "porter clerk loader"),
    _theme("reserve park forest", "trail shelter watchtower", "patrol sighting cleanup", "ranger biologist"),
    _theme("broadcaster label channel", "podcast album", "recording concert premiere", "singer producer host"),
    _theme("dairy brewery distillery", "boiler tank pump", "batch leak certification", "brewer chemist cooper"),
    _theme("cooperative guild society", "contract pension policy", "negotiation claim renewal", "advisor lawyer agent"),
    _theme("temple abbey monastery", "bell organ fountain", "procession blessing tour", "monk sculptor organist"),
    _theme("courthouse ministry embassy", "statute treaty permit", "hearing appeal revision", "judge diplomat notary"),
    _theme("reservoir waterworks dam", "turbine valve pipeline", "flushing outage sampling", "hydrologist plumber"),
    _theme("garage dealership racetrack", "car motorcycle van", "race tuning collision", "racer salesman"),
)  # fmt: skip
HELD_OUT_EVERY = 6


def themes(split: str | None) -> tuple[Theme, ...]:
    """Return the themes in a split."""
    return tuple(theme for i, theme in enumerate(THEMES) if split in (None, split_of_theme(i)))


def split_of_theme(index: int) -> str:
    return "test" if index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else "train"


@dataclass(frozen=True, slots=True)
class Category:
    phrase: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Number:
    phrase: str
    low: int
    high: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Date:
    phrase: str
    first: str
    last: str


def _category(phrase: str, values: str) -> Category:
    return Category(phrase, tuple(values.split()))


CATEGORIES = {
    PLACE: (
        _category("region", "north south east west center"),
        _category("status", "open closed planned suspended"),
        _category("funding", "public private mixed"),
        _category("category", "A B C D"),
        _category("climate", "dry humid alpine coastal"),
        _category("owner type", "city state family company"),
    ),
    UNIT: (
        _category("color", "red blue green white black"),
        _category("condition", "new good fair poor"),
        _category("size class", "small medium large giant"),
        _category("kind", "standard premium budget special"),
        _category("origin", "local imported donated inherited"),
        _category("quality", "bronze silver gold platinum"),
    ),
    EVENT: (
        _category("outcome", "success failure partial cancelled"),
        _category("priority", "low normal high urgent"),
        _category("season", "spring summer autumn winter"),
        _category("mode", "manual automatic remote"),
        _category("payment", "cash card invoice voucher"),
        _category("weather", "sunny rainy windy snowy foggy"),
    ),
    PERSON: (
        _category("rank", "junior senior lead chief"),
        _category("language", "French German Spanish Polish"),
        _category("shift", "morning evening night"),
        _category("contract type", "permanent temporary freelance"),
        _category("department", "planning quality support"),
    ),
}
NUMBERS = {
    PLACE: (
        Number("capacity", 1, 50, 10),
        Number("area", 20, 400, 5),
        Number("staff count", 2, 60),
        Number("annual budget", 1, 90, 10),
        Number("founding year", 1900, 2015),
    ),
    UNIT: (
        Number("weight", 5, 300),
        Number("price", 2, 80, 25),
        Number("length", 3, 90),
        Number("rating", 1, 10),
        Number("production year", 1980, 2022),
        Number("number of parts", 2, 40),
    ),
    EVENT: (
        Number("cost", 1, 60, 10),
        Number("duration", 5, 180, 5),
        Number("score", 1, 20),
        Number("attendance", 0, 40),
        Number("distance", 1, 120),
        Number("error count", 0, 9),
    ),
    PERSON: (
        Number("age", 19, 66),
        Number("salary", 18, 90, 100),
        Number("years of experience", 0, 30),
        Number("number of awards", 0, 8),
    ),
}
DATES = {
    PLACE: (Date("opening date", "1995-01-01", "2015-12-31"), Date("license date", "2010-01-01", "2020-12-31")),
    UNIT: (Date("registration date", "2012-01-01", "2020-12-31"), Date("purchase date", "2014-01-01", "2021-12-31")),
    EVENT: (Date("start date", "2021-01-01", "2024-12-31"), Date("entry date", "2022-01-01", "2024-12-31")),
    PERSON: (Date("hiring date", "2005-01-01", "2022-12-31"), Date("birth date", "1958-01-01", "2003-12-31")),
}
END_DATE = "end date"  # end date of an event; NULL while the event has not ended
LINK_NUMBERS = (Number("hours", 1, 40), Number("share", 5, 100, 1), Number("position", 1, 9), Number("fee", 1, 30, 10))


def plural(noun: str) -> str:
    """Return the plural of an English noun in this module."""
    if noun == "salesman":
        return "salesmen"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    if noun.endswith("is"):
        return f"{noun[:-2]}es"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    return f"{noun}s"

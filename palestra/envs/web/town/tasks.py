"""Tasks on the map: details of places, routes, reviews, saved places and corrections."""

from __future__ import annotations

import itertools

from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.markup import path
from palestra.envs.web.suite.tasks import NOT_POSSIBLE, Choose, Click, Draw, Enter, Fill, Move, Stop, Task, template
from palestra.envs.web.town.app import TOWN
from palestra.envs.web.town.content import LISTS, NOUNS, OPINIONS, USER, Place, Town, town
from palestra.envs.web.town.streets import SPEEDS, Route

SITE = TOWN.name


def find(place: Place) -> tuple[Move, ...]:
    """Return the moves that open the page of a place."""
    return Enter("Search places", place.name), Click(place.name)


def ask_route(start: Place, end: Place, mode: str) -> tuple[Move, ...]:
    """Return the moves that show a route."""
    ends = (Fill("From", start.name), Fill("To", end.name))
    return Click("Directions"), *ends, Choose("Mode", mode), Click("Show route")


def route_of(content: Town, start: Place, end: Place, mode: str) -> Route:
    route = content.streets.route(start.corner, end.corner, mode)
    return Route(0, 0, ()) if route is None else route


def distant_pair(draw: Draw, mode: str, most: int = 2) -> list[Place]:
    """Return places between which there are routes of different lengths."""
    content = town(draw.data_seed)
    for _ in range(100):
        places = draw.rng.sample(content.places, most)
        routes = [route_of(content, first, last, mode) for first, last in itertools.pairwise(places)]
        back = [route_of(content, last, first, mode) for first, last in itertools.pairwise(places)]
        if all(route.meters > 300 for route in (*routes, *back)) and len({place.corner for place in places}) == most:
            return places
    raise ValueError("the places of this town are too close to each other")


def minutes(count: int) -> tuple[str, ...]:
    return str(count), f"{count} min", f"{count} minutes"


@template(SITE, level=1)
def address_of(draw: Draw) -> Task:
    first, second = draw.pair(town(draw.data_seed).places)
    return Task(
        intent=f"What is the address of the {first.name}?",
        answer=(first.address,),
        expert=(*find(first), Stop(first.address)),
        wrong=(*find(second), Stop(second.address)),
        evidence=(first.address,),
    )


@template(SITE, level=1)
def phone_of(draw: Draw) -> Task:
    first, second = draw.pair(place for place in town(draw.data_seed).places if place.phone)
    return Task(
        intent=f"What is the phone number of the {first.name}?",
        answer=(first.phone,),
        expert=(*find(first), Stop(first.phone)),
        wrong=(*find(second), Stop(second.phone)),
        evidence=(first.phone,),
    )


@template(SITE, level=1, held_out=True)
def closing_time(draw: Draw) -> Task:
    place = draw.choice(town(draw.data_seed).places)
    return Task(
        intent=f"When does the {place.name} close? Answer with a time such as 17:00.",
        answer=(place.closes,),
        expert=(*find(place), Stop(place.closes)),
        wrong=(*find(place), Stop(place.hours.partition(" to ")[0])),
        evidence=(place.hours,),
    )


@template(SITE, level=1)
def open_place(draw: Draw) -> Task:
    first, second = draw.pair(town(draw.data_seed).places)
    return Task(
        intent=f"Open the page of the {first.name} on the map, and stop there.",
        url=TOWN.url + path("place", first.name)[1:],
        expert=(*find(first), Stop()),
        wrong=(*find(second), Stop()),
    )


@template(SITE, level=1)
def save_place(draw: Draw) -> Task:
    content = town(draw.data_seed)
    name, other = draw.pair(LISTS)
    taken = {place for _, place in content.saved}
    place = draw.choice(place for place in content.places if place.name not in taken)
    return Task(
        intent=f"Save the {place.name} in the list {name}.",
        changes=(Change(SITE, "INSERT INTO saved VALUES (?, ?)", (name, place.name)),),
        expert=(*find(place), Choose("List", name), Click("Save"), Stop()),
        wrong=(*find(place), Choose("List", other), Click("Save"), Stop()),
    )


@template(SITE, level=1)
def unsave_place(draw: Draw) -> Task:
    (name, place), (other_name, other) = draw.pair(town(draw.data_seed).saved)
    return Task(
        intent=f"Remove the {place} from the list {name} of your saved places.",
        changes=(Change(SITE, "DELETE FROM saved WHERE list = ? AND place = ?", (name, place)),),
        expert=(Click("Saved places"), Click(f"Remove {place} from {name}"), Stop()),
        wrong=(Click("Saved places"), Click(f"Remove {other} from {other_name}"), Stop()),
    )


@template(SITE, level=2)
def travel_time(draw: Draw) -> Task:
    mode = draw.choice(("Walking", "Cycling"))
    start, end = distant_pair(draw, mode)
    content = town(draw.data_seed)
    route = route_of(content, start, end, mode)
    other = route_of(content, start, end, "Cycling" if mode == "Walking" else "Walking")
    return Task(
        intent=f"How many minutes does the way from the {start.name} to the {end.name} take when {mode.lower()}? "
        "Answer with a number.",
        answer=minutes(route.minutes),
        expert=(*ask_route(start, end, mode), Stop(str(route.minutes))),
        wrong=(*ask_route(start, end, mode), Stop(str(other.minutes))),
        evidence=(f"{route.meters} m, {route.minutes} min",),
    )


@template(SITE, level=2)
def driving_distance(draw: Draw) -> Task:
    start, end = distant_pair(draw, "Driving")
    route = route_of(town(draw.data_seed), start, end, "Driving")
    straight = town(draw.data_seed).streets.distance(start.corner, end.corner)
    return Task(
        intent=f"How many meters long is the route by car from the {start.name} to the {end.name}? "
        "Answer with a number.",
        answer=(str(route.meters), f"{route.meters} m", f"{route.meters} meters"),
        expert=(*ask_route(start, end, "Driving"), Stop(str(route.meters))),
        wrong=(Stop(str(straight if straight != route.meters else straight + 10)),),
        evidence=(f"{route.meters} m, {route.minutes} min",),
    )


@template(SITE, level=2)
def last_street(draw: Draw) -> Task:
    for _ in range(100):
        start, end = distant_pair(draw, "Walking")
        route = route_of(town(draw.data_seed), start, end, "Walking")
        if len({leg.street for leg in route.legs}) > 1:
            break
    last = route.legs[-1].street
    first = next(leg.street for leg in route.legs if leg.street != last)
    return Task(
        intent=f"On which street does the walk from the {start.name} to the {end.name} end?",
        answer=(last,),
        expert=(*ask_route(start, end, "Walking"), Stop(last)),
        wrong=(*ask_route(start, end, "Walking"), Stop(first)),
        evidence=tuple(f"{leg.street}, {leg.meters} m" for leg in route.legs),
    )


@template(SITE, level=2)
def nearest(draw: Draw) -> Task:
    content = town(draw.data_seed)
    for _ in range(100):
        place, category = draw.choice(content.places), draw.choice(NOUNS)
        closest = content.nearest(place.corner, category, besides=place.name)
        if closest[0][0] < closest[1][0]:
            break
    return Task(
        intent=f"Which {category.lower()} is nearest to the {place.name}? Answer with its name.",
        answer=(closest[0][1].name,),
        expert=(*find(place), Click("Nearby"), Choose("Category", category), Click("Show"), Stop(closest[0][1].name)),
        wrong=(Click(category), Stop(closest[1][1].name)),
        evidence=(f"{closest[0][0]} m", f"{closest[1][0]} m"),
    )


@template(SITE, level=2)
def write_review(draw: Draw) -> Task:
    content = town(draw.data_seed)
    own = {review[1] for review in content.own_reviews}
    place = draw.choice(place for place in content.places if place.name not in own)
    stars, other = draw.pair("12345")
    words = draw.choice(OPINIONS)
    insertion = "INSERT INTO review (place, author, stars, text) VALUES (?, ?, ?, ?)"
    ends: tuple[Move, ...] = (Fill("Review", words), Click("Post review"), Stop())
    return Task(
        intent=f'Write a review of the {place.name} with {stars} of 5 stars and the text "{words}"',
        changes=(Change(SITE, insertion, (place.name, USER, int(stars), words)),),
        expert=(*find(place), Choose("Stars", stars), *ends),
        wrong=(*find(place), Choose("Stars", other), *ends),
    )


@template(SITE, level=2, held_out=True)
def delete_review(draw: Draw) -> Task:
    first, second = draw.pair(town(draw.data_seed).own_reviews)
    content = town(draw.data_seed)
    place, other = (next(place for place in content.places if place.name == row[1]) for row in (first, second))
    return Task(
        intent=f"Delete your review of the {place.name}.",
        changes=(Change(SITE, "DELETE FROM review WHERE place = ? AND author = ?", (place.name, USER)),),
        expert=(*find(place), Click("Delete my review"), Stop()),
        wrong=(*find(other), Click("Delete my review"), Stop()),
    )


@template(SITE, level=2)
def suggest_hours(draw: Draw) -> Task:
    place = draw.choice(town(draw.data_seed).places)
    hours = f"{draw.rng.randint(5, 11)}:30 to {draw.rng.randint(14, 22)}:45"
    opened: tuple[Move, ...] = (*find(place), Click("Suggest a correction"))
    insertion = "INSERT INTO suggestion (place, field, value) VALUES (?, ?, ?)"
    return Task(
        intent=f'Suggest a correction for the {place.name}: its hours are "{hours}".',
        changes=(Change(SITE, insertion, (place.name, "Hours", hours)),),
        expert=(*opened, Choose("Field", "Hours"), Fill("New value", hours), Click("Send"), Stop()),
        wrong=(*opened, Choose("Field", "Phone"), Fill("New value", hours), Click("Send"), Stop()),
    )


@template(SITE, level=2)
def count_on_street(draw: Draw) -> Task:
    content = town(draw.data_seed)
    street = draw.choice(place.address.partition(" ")[2] for place in content.places)
    addresses = [place.address for place in content.places if place.address.endswith(street)]
    count = len(addresses)
    return Task(
        intent=f"How many places on the map have an address on {street}? Answer with a number.",
        answer=(str(count),),
        expert=(Enter("Search places", street), Stop(str(count))),
        wrong=(Enter("Search places", street), Stop(str(count + 1))),
        evidence=tuple(addresses),
    )


@template(SITE, level=2)
def no_phone(draw: Draw) -> Task:
    content = town(draw.data_seed)
    place = draw.choice([place for place in content.places if not place.phone])
    other = draw.choice(place for place in content.places if place.phone)
    return Task(
        intent=f"What is the telephone number of the {place.name}?",
        answer=(NOT_POSSIBLE,),
        expert=(*find(place), Stop(NOT_POSSIBLE)),
        wrong=(*find(place), Stop(other.phone)),
        evidence=("unknown",),
    )


@template(SITE, level=2, held_out=True)
def no_such_place(draw: Draw) -> Task:
    content = town(draw.data_seed)
    start = draw.choice(content.places)
    category = draw.choice(NOUNS)
    name = f"Ancient {draw.choice(NOUNS[category])} {category}"
    other = draw.choice(content.of(category))
    time = route_of(content, start, other, "Walking").minutes
    shown = (Fill("From", start.name), Fill("To", name), Click("Show route"))
    return Task(
        intent=f"How many minutes does it take to walk from the {start.name} to the {name}? Answer with a number.",
        answer=(NOT_POSSIBLE,),
        expert=(Click("Directions"), *shown, Stop(NOT_POSSIBLE)),
        wrong=(*ask_route(start, other, "Walking"), Stop(str(time))),
        evidence=(f"There is no single place called {name}.",),
    )


@template(SITE, level=3)
def tour_time(draw: Draw) -> Task:
    places = distant_pair(draw, "Walking", 3)
    content = town(draw.data_seed)
    times = [route_of(content, places[at], places[at + 1], "Walking").minutes for at in (0, 1)]
    direct = route_of(content, places[0], places[2], "Walking").minutes
    first, second, third = places
    return Task(
        intent=f"You walk from the {first.name} to the {second.name}, and from there to the {third.name}. "
        "How many minutes do the two walks take together? Add the minutes on the map, and answer with a number.",
        answer=minutes(sum(times)),
        expert=(*ask_route(first, second, "Walking"), *ask_route(second, third, "Walking"), Stop(str(sum(times)))),
        wrong=(*ask_route(first, third, "Walking"), Stop(str(direct if direct != sum(times) else direct + 1))),
        evidence=tuple(f"{time} min" for time in times),
    )


@template(SITE, level=3)
def closer_of_two(draw: Draw) -> Task:
    content = town(draw.data_seed)
    mode = draw.choice(("Walking", "Driving"))
    for _ in range(100):
        start, first, second = distant_pair(draw, "Driving", 3)
        lengths = [route_of(content, start, end, mode).meters for end in (first, second)]
        if 0 < lengths[0] < lengths[1] or lengths[0] > lengths[1] > 0:
            break
    near, far = (first, second) if lengths[0] < lengths[1] else (second, first)
    return Task(
        intent=f"Which place is fewer meters away from the {start.name} when {mode.lower()}: the {first.name} or the "
        f"{second.name}? Answer with its name.",
        answer=(near.name, f"the {near.name}"),
        expert=(*ask_route(start, first, mode), *ask_route(start, second, mode), Stop(near.name)),
        wrong=(*ask_route(start, far, mode), Stop(far.name)),
        evidence=tuple(f"{length} m" for length in lengths),
    )


@template(SITE, level=3)
def save_best(draw: Draw) -> Task:
    content = town(draw.data_seed)
    choices = []
    for category in NOUNS:
        order = sorted(content.of(category), key=lambda place: float(place.rating))
        if order[-1].rating != order[-2].rating and order[-1].name not in {place for _, place in content.saved}:
            choices.append((category, order))
    category, order = draw.choice(choices)
    best, second = order[-1], order[-2]
    name = draw.choice(LISTS)
    visits = tuple(move for place in order for move in (Click("Map"), Click(category), Click(place.name)))
    save: tuple[Move, ...] = (Choose("List", name), Click("Save"), Stop())
    return Task(
        intent=f"Save the {category.lower()} with the best rating in the list {name}.",
        changes=(Change(SITE, "INSERT INTO saved VALUES (?, ?)", (name, best.name)),),
        expert=(*visits, *save),
        wrong=(*find(second), *save),
        evidence=tuple(f"{place.rating} of 5" for place in order),
    )


@template(SITE, level=3)
def clear_list(draw: Draw) -> Task:
    content = town(draw.data_seed)
    name = draw.choice(LISTS)
    places = sorted(place for saved, place in content.saved if saved == name)
    removals = tuple(Click(f"Remove {place} from {name}") for place in places)
    return Task(
        intent=f"Remove all places from the list {name} of your saved places, which contains the {places[0]}.",
        changes=(Change(SITE, "DELETE FROM saved WHERE list = ?", (name,)),),
        expert=(Click("Saved places"), *removals, Stop()),
        wrong=(Click("Saved places"), *removals[:-1], Stop()),
    )


@template(SITE, level=3, held_out=True)
def closes_last(draw: Draw) -> Task:
    content = town(draw.data_seed)
    choices = []
    for category in NOUNS:
        order = sorted(content.of(category), key=lambda place: tuple(map(int, place.closes.split(":"))))
        if order[-1].closes != order[-2].closes:
            choices.append((category, order))
    category, order = draw.choice(choices)
    visits = tuple(move for place in order for move in (Click("Map"), Click(category), Click(place.name)))
    return Task(
        intent=f"Which {category.lower()} in {content.city.title} closes last in the evening? Answer with its name.",
        answer=(order[-1].name, f"the {order[-1].name}"),
        expert=(*visits, Stop(order[-1].name)),
        wrong=(Click(category), Stop(order[0].name)),
        evidence=tuple(place.hours for place in order),
    )


@template(SITE, level=3)
def detour_by_car(draw: Draw) -> Task:
    content = town(draw.data_seed)
    for _ in range(100):
        start, end = distant_pair(draw, "Driving")
        lengths = {mode: route_of(content, start, end, mode).meters for mode in SPEEDS}
        extra = lengths["Driving"] - lengths["Walking"]
        if extra > 0:
            break
    asked: list[Move] = []
    for mode in ("Driving", "Walking"):
        asked += ask_route(start, end, mode)
    return Task(
        intent=f"How many meters longer is the way from the {start.name} to the {end.name} by car than on foot? "
        "Answer with a number.",
        answer=(str(extra), f"{extra} m", f"{extra} meters"),
        expert=(*asked, Stop(str(extra))),
        wrong=(*asked, Stop(str(extra + 20))),
        evidence=tuple(f"{lengths[mode]} m" for mode in ("Driving", "Walking")),
    )

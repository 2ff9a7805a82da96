"""The pages of the map."""

from __future__ import annotations

from palestra.browser.sites import Response
from palestra.envs.web.suite.app import Call, Redirect, Reply, SqlApp
from palestra.envs.web.suite.markup import (
    Html,
    button,
    choice,
    definitions,
    field,
    form,
    hidden,
    items,
    join,
    link,
    page,
    path,
    table,
    tag,
    text,
)
from palestra.envs.web.town.content import COMPARED, LISTS, NOUNS, SCHEMA, USER, Place, Town, fill, town
from palestra.envs.web.town.streets import SPEEDS

CATEGORIES = ("Institution", *NOUNS)
STARS = ("5", "4", "3", "2", "1")
FIELDS = ("Hours", "Phone", "Address", "Permanently closed")

TOWN = SqlApp("map", SCHEMA, fill, town)
TOWN.compared = COMPARED


def _page(call: Call, title: str, *body: object) -> Html:
    search = form("/search", field("Search places", "q"), button("Search"), method="get")
    places = (link("/", "Map"), link("/directions", "Directions"), link("/saved", "Saved places"), search)
    return page(f"{title} - {_town(call).city.title} Map", join(body), navigation=join(places))


def _town(call: Call) -> Town:
    content: Town = call.content
    return content


@TOWN.get("/")
def home(call: Call) -> Reply:
    content = _town(call)
    return _page(
        call,
        "Map",
        tag("h1", f"Map of {content.city.title}"),
        _picture(f"Map of {content.city.title}", ""),
        tag("h2", "Categories"),
        items(link(path("category", name), name) for name in CATEGORIES),
    )


def _picture(label: str, name: str) -> Html:
    return Html(f'<img src="{path("map.svg", place=name)}" alt="{text(label)}" width="600" height="480">')


@TOWN.get("/map.svg")
def picture(call: Call) -> Reply:
    content = _town(call)
    lines = [
        f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="#999" stroke-width="{14 if part.main else 7}"/>'
        for node, segments in enumerate(content.streets.segments)
        for part in segments
        if part.end > node
        for (x, y), (to_x, to_y) in ((content.streets.position(node), content.streets.position(part.end)),)
    ]
    names = [
        f'<text x="{content.streets.x[0] - 10}" y="{y - 12}" font-size="26">{name}</text>'
        for name, y in zip(content.streets.streets, content.streets.y, strict=True)
    ]
    chosen = call.field("place")
    dots = [
        f'<circle cx="{x}" cy="{y}" r="{22 if place.name == chosen else 9}" '
        f'fill="{"#d22" if place.name == chosen else "#26c"}"/>'
        for place in content.places
        for x, y in (content.streets.position(place.corner),)
    ]
    width, height = content.streets.x[-1] + 120, content.streets.y[-1] + 120
    drawing = "".join((*lines, *dots, *names))
    body = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-60 -60 {width} {height}">{drawing}</svg>'
    return Response(status=200, headers=(("Content-Type", "image/svg+xml"),), body=body.encode())


def _listed(places: list[Place]) -> Html:
    return items(join((link(path("place", place.name), place.name), f", {place.address}")) for place in places)


@TOWN.get("/category/<name>")
def category(call: Call, name: str) -> Reply:
    if name not in CATEGORIES:
        return None
    places = _town(call).of(name)
    rows = ((link(path("place", place.name), place.name), place.address) for place in places)
    return _page(call, name, tag("h1", f"Category: {name}"), table(("Name", "Address"), rows))


@TOWN.get("/search")
def search(call: Call) -> Reply:
    words = call.field("q").lower().split()
    matches = [
        place
        for place in _town(call).places
        if words and all(word in f"{place.name} {place.address} {place.category}".lower() for word in words)
    ]
    listed = _listed(matches) if matches else tag("p", "No places found.")
    return _page(call, "Search", tag("h1", "Search results"), tag("p", f"{len(matches)} results"), listed)


@TOWN.get("/place/<name>")
def place(call: Call, name: str) -> Reply:
    chosen = next((place for place in _town(call).places if place.name == name), None)
    if chosen is None:
        return None
    details = {
        "Category": chosen.category,
        "Address": chosen.address,
        "Hours": chosen.hours,
        "Phone": chosen.phone or "unknown",
        "Rating": f"{chosen.rating} of 5",
        "Wheelchair access": chosen.accessible,
    }
    reviews = call.rows("SELECT id, author, stars, text FROM review WHERE place = ? ORDER BY id", name)
    lists = [saved for (saved,) in call.rows("SELECT list FROM saved WHERE place = ? ORDER BY list", name)]
    return _page(
        call,
        name,
        tag("h1", name),
        definitions(details),
        _picture(f"Position of {name}", name),
        items(
            (
                link(path("directions", **{"from": name}), "Directions from here"),
                link(path("nearby", name), "Nearby"),
                link(path("suggest", name), "Suggest a correction"),
            )
        ),
        tag("p", f"Saved in: {', '.join(lists) or 'no list'}"),
        form(path("save", name), choice("List", "list", LISTS), button("Save")),
        tag("h2", "Reviews"),
        items(_review(name, *review) for review in reviews),
        tag("h2", "Write a review"),
        form(
            path("review", name),
            choice("Stars", "stars", STARS),
            field("Review", "text", kind="textarea"),
            button("Post review"),
        ),
    )


def _review(place: str, number: int, author: str, stars: int, words: str) -> Html:
    own = (
        form(path("unreview", place), hidden("id", number), button("Delete my review")) if author == USER else text("")
    )
    return join((tag("b", author), f", {stars} stars: {words}", own))


@TOWN.post("/save/<name>")
def save(call: Call, name: str) -> Reply:
    chosen = call.field("list")
    if chosen in LISTS and not call.value("SELECT 1 FROM saved WHERE list = ? AND place = ?", chosen, name):
        call.rows("INSERT INTO saved VALUES (?, ?)", chosen, name)
    return Redirect(path("place", name))


@TOWN.get("/saved")
def saved(call: Call) -> Reply:
    parts: list[Html] = []
    for name in LISTS:
        places = [place for (place,) in call.rows("SELECT place FROM saved WHERE list = ? ORDER BY place", name)]
        rows = (
            (
                link(path("place", place), place),
                form("/unsave", hidden("list", name), hidden("place", place), button(f"Remove {place} from {name}")),
            )
            for place in places
        )
        parts += [tag("h2", name), table(("Place", "Action"), rows) if places else tag("p", "This list is empty.")]
    return _page(call, "Saved places", tag("h1", "Saved places"), *parts)


@TOWN.post("/unsave")
def unsave(call: Call) -> Reply:
    call.rows("DELETE FROM saved WHERE list = ? AND place = ?", call.field("list"), call.field("place"))
    return Redirect("/saved")


@TOWN.post("/review/<name>")
def review(call: Call, name: str) -> Reply:
    stars, words = call.field("stars"), call.field("text")
    if stars in STARS and _town(call).named(name) is not None:
        insertion = "INSERT INTO review (place, author, stars, text) VALUES (?, ?, ?, ?)"
        call.rows(insertion, name, USER, int(stars), words)
    return Redirect(path("place", name))


@TOWN.post("/unreview/<name>")
def unreview(call: Call, name: str) -> Reply:
    call.rows("DELETE FROM review WHERE id = ? AND place = ? AND author = ?", call.field("id"), name, USER)
    return Redirect(path("place", name))


@TOWN.get("/suggest/<name>")
def suggest(call: Call, name: str) -> Reply:
    sent = tag("p", "Thank you for your suggestion.") if call.field("sent") else text("")
    fields = (choice("Field", "field", FIELDS), field("New value", "value"), button("Send"))
    return _page(call, name, tag("h1", f"Suggest a correction: {name}"), sent, form(path("suggest", name), *fields))


@TOWN.post("/suggest/<name>")
def send_suggestion(call: Call, name: str) -> Reply:
    if call.field("field") in FIELDS:
        insertion = "INSERT INTO suggestion (place, field, value) VALUES (?, ?, ?)"
        call.rows(insertion, name, call.field("field"), call.field("value"))
    return Redirect(path("suggest", name, sent="1"))


@TOWN.get("/nearby/<name>")
def nearby(call: Call, name: str) -> Reply:
    content = _town(call)
    here = content.named(name)
    if here is None:
        return None
    chosen = call.field("category")
    fields = form(
        path("nearby", name), choice("Category", "category", CATEGORIES, chosen), button("Show"), method="get"
    )
    places = content.nearest(here.corner, chosen, besides=here.name) if chosen in CATEGORIES else []
    rows = ((link(path("place", place.name), place.name), f"{meters} m") for meters, place in places)
    listed = table(("Name", "Distance"), rows) if places else text("")
    return _page(call, f"Near {name}", tag("h1", f"Near {here.name}"), fields, listed)


@TOWN.get("/directions")
def directions(call: Call) -> Reply:
    content = _town(call)
    start, end, mode = call.field("from"), call.field("to"), call.field("mode", "Walking")
    fields = form(
        "/directions",
        field("From", "from", start),
        field("To", "to", end),
        choice("Mode", "mode", tuple(SPEEDS), mode),
        button("Show route"),
        method="get",
    )
    return _page(call, "Directions", tag("h1", "Directions"), fields, _route(content, start, end, mode))


def _route(content: Town, start: str, end: str, mode: str) -> Html:
    if not start or not end or mode not in SPEEDS:
        return text("")
    places = content.named(start), content.named(end)
    missing = [name for name, place in zip((start, end), places, strict=True) if place is None]
    if places[0] is None or places[1] is None:
        return join(tag("p", f"There is no single place called {name}.") for name in missing)
    route = content.streets.route(places[0].corner, places[1].corner, mode)
    if route is None:
        return tag("p", "There is no route.")
    summary = f"{mode}: {route.meters} m, {route.minutes} min"
    return join((tag("p", summary), items(f"{leg.street}, {leg.meters} m" for leg in route.legs)))

"""The pages of the encyclopedia."""

from __future__ import annotations

import re

from palestra.envs.web.encyclopedia.content import COMPARED, PREFERENCES, SCHEMA, USER, fill, library
from palestra.envs.web.suite.app import Call, Redirect, Reply, SqlApp
from palestra.envs.web.suite.markup import (
    Html,
    button,
    choice,
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

PAGE_SIZE = 50
RESULTS = 20
_LINK = re.compile(r"\[\[(.*?)\]\]")
PLURALS = {
    "country": "Countries",
    "province": "Provinces",
    "city": "Cities",
    "river": "Rivers",
    "mountain": "Mountains",
    "organisation": "Organizations",
    "event": "Events",
    "work": "Works",
    "person": "People",
}

ENCYCLOPEDIA = SqlApp("encyclopedia", SCHEMA, fill, library)
ENCYCLOPEDIA.compared = COMPARED


def _page(title: str, *body: object) -> Html:
    search = form("/search", field("Search", "q"), button("Search"), method="get")
    places = (link("/", "Main page"), link("/watchlist", "Watchlist"), link("/preferences", "Preferences"), search)
    return page(f"{title} - Encyclopedia", join(body), navigation=join(places))


def _body(call: Call, title: str) -> str | None:
    body: str | None = call.value("SELECT body FROM article WHERE title = ?", title)
    return body


@ENCYCLOPEDIA.get("/")
def main_page(call: Call) -> Reply:
    count = call.value("SELECT COUNT(*) FROM article")
    categories = items(link(path("category", kind), name) for kind, name in PLURALS.items())
    return _page(
        "Main page",
        tag("h1", "Encyclopedia"),
        tag("p", f"{count} articles that anyone can edit. You are signed in as {USER}."),
        tag("h2", "Categories"),
        categories,
        link("/new", "Create an article"),
    )


@ENCYCLOPEDIA.get("/category/<kind>")
def category(call: Call, kind: str) -> Reply:
    if kind not in PLURALS:
        return None
    titles = [title for (title,) in call.rows("SELECT title FROM article WHERE kind = ? ORDER BY title", kind)]
    number = call.field("page", "1")
    first = (int(number) - 1) * PAGE_SIZE if number.isdecimal() and len(number) < 4 else 0
    more = (
        [link(path("category", kind, page=first // PAGE_SIZE + 2), "Next page")] if titles[first + PAGE_SIZE :] else []
    )
    listed = items(link(path("wiki", title), title) for title in titles[first : first + PAGE_SIZE])
    return _page(PLURALS[kind], tag("h1", PLURALS[kind]), tag("p", f"{len(titles)} articles"), listed, *more)


@ENCYCLOPEDIA.get("/search")
def search(call: Call) -> Reply:
    query = call.field("q")
    rows = call.rows(
        "SELECT title, kind FROM article WHERE title LIKE '%' || ?1 || '%' OR body LIKE '%' || ?1 || '%' "
        "ORDER BY title <> ?1 COLLATE NOCASE, NOT title LIKE '%' || ?1 || '%', title LIMIT ?2",
        query,
        RESULTS,
    )
    listed = items(join((link(path("wiki", title), title), f" ({kind})")) for title, kind in rows if query)
    none = join((tag("p", "No articles found."), link(path("new", title=query), "Create an article")))
    return _page("Search", tag("h1", "Search results"), listed if rows and query else none)


def _tabs(call: Call, title: str) -> Html:
    watched = call.value("SELECT 1 FROM watched WHERE title = ?", title)
    toggle = form(path("watch", title), button("Unwatch" if watched else "Watch"))
    places = (("wiki", "Article"), ("talk", "Talk"), ("edit", "Edit"), ("history", "History"))
    return join([*(link(path(place, title), name) for place, name in places), toggle], " ")


@ENCYCLOPEDIA.get("/wiki/<title>")
def article(call: Call, title: str) -> Reply:
    body = _body(call, title)
    if body is None:
        return None
    parts = _LINK.split(body)
    shown = join(link(path("wiki", part), part) if number % 2 else part for number, part in enumerate(parts))
    return _page(title, _tabs(call, title), tag("h1", title), tag("p", shown))


@ENCYCLOPEDIA.post("/watch/<title>")
def watch(call: Call, title: str) -> Reply:
    if _body(call, title) is None:
        return None
    removed = call.database.execute("DELETE FROM watched WHERE title = ?", (title,)).rowcount
    if not removed:
        call.rows("INSERT INTO watched VALUES (?)", title)
    return Redirect(path("wiki", title))


@ENCYCLOPEDIA.get("/watchlist")
def watchlist(call: Call) -> Reply:
    titles = [title for (title,) in call.rows("SELECT title FROM watched ORDER BY title")]
    listed = items(link(path("wiki", title), title) for title in titles)
    return _page("Watchlist", tag("h1", "Watchlist"), listed if titles else tag("p", "You watch no articles."))


@ENCYCLOPEDIA.get("/edit/<title>")
def edit(call: Call, title: str) -> Reply:
    body = _body(call, title)
    if body is None:
        return None
    editor = form(path("edit", title), field("Text", "body", body, kind="textarea"), button("Save"))
    return _page(title, _tabs(call, title), tag("h1", f"Editing {title}"), tag("p", "Links are [[titles]]."), editor)


@ENCYCLOPEDIA.post("/edit/<title>")
def save(call: Call, title: str) -> Reply:
    if _body(call, title) is None:
        return None
    _revise(call, title, call.field("body"))
    return Redirect(path("wiki", title))


def _revise(call: Call, title: str, body: str) -> None:
    number = call.value("SELECT COALESCE(MAX(number), 0) + 1 FROM revision WHERE title = ?", title)
    call.rows("UPDATE article SET body = ? WHERE title = ?", body, title)
    call.rows("INSERT INTO revision VALUES (?, ?, ?, ?)", title, number, USER, body)


@ENCYCLOPEDIA.get("/new")
def new(call: Call) -> Reply:
    return _page("New article", tag("h1", "Create an article"), _editor(call.field("title"), ""))


def _editor(title: str, body: str) -> Html:
    kinds = choice("Category", "kind", tuple(PLURALS.values()))
    return form(
        "/new", field("Title", "title", title), kinds, field("Text", "body", body, kind="textarea"), button("Create")
    )


@ENCYCLOPEDIA.post("/new")
def create(call: Call) -> Reply:
    title, body = call.field("title"), call.field("body")
    kind = next((kind for kind, name in PLURALS.items() if name == call.field("kind")), "")
    if not title or not body or not kind or "/" in title or _body(call, title) is not None:
        problem = tag("p", "An article needs a text and a title that no other article has, without slashes.")
        return _page("New article", tag("h1", "Create an article"), problem, _editor(title, body))
    call.rows("INSERT INTO article VALUES (?, ?, '')", title, kind)
    _revise(call, title, body)
    return Redirect(path("wiki", title))


@ENCYCLOPEDIA.get("/history/<title>")
def history(call: Call, title: str) -> Reply:
    rows = call.rows("SELECT number, author, body FROM revision WHERE title = ? ORDER BY number DESC", title)
    if not rows:
        return None

    def row(number: int, author: str, body: str) -> tuple[object, ...]:
        restore = form(path("restore", title), hidden("number", number), button(f"Restore revision {number}"))
        return number, author, body[:80], restore

    listed = table(("Revision", "Author", "Beginning", "Action"), (row(*values) for values in rows))
    return _page(title, _tabs(call, title), tag("h1", f"History of {title}"), listed)


@ENCYCLOPEDIA.post("/restore/<title>")
def restore(call: Call, title: str) -> Reply:
    body = call.value("SELECT body FROM revision WHERE title = ? AND number = ?", title, call.field("number"))
    if body is None or _body(call, title) is None:
        return None
    _revise(call, title, body)
    return Redirect(path("wiki", title))


@ENCYCLOPEDIA.get("/talk/<title>")
def talk(call: Call, title: str) -> Reply:
    if _body(call, title) is None:
        return None
    rows = call.rows("SELECT id, author, text FROM message WHERE title = ? ORDER BY id", title)
    listed = items(
        join(
            (
                tag("b", author),
                ": ",
                words,
                form(path("remove", title), hidden("id", number), button(f"Remove message {place}")),
            )
        )
        for place, (number, author, words) in enumerate(rows, 1)
    )
    write = form(path("talk", title), field("Message", "text", kind="textarea"), button("Post"))
    return _page(title, _tabs(call, title), tag("h1", f"Talk: {title}"), listed, write)


@ENCYCLOPEDIA.post("/talk/<title>")
def post(call: Call, title: str) -> Reply:
    if _body(call, title) is None:
        return None
    words = call.field("text")
    if words:
        call.rows("INSERT INTO message (title, author, text) VALUES (?, ?, ?)", title, USER, words)
    return Redirect(path("talk", title))


@ENCYCLOPEDIA.post("/remove/<title>")
def remove(call: Call, title: str) -> Reply:
    call.rows("DELETE FROM message WHERE title = ? AND id = ?", title, call.field("id"))
    return Redirect(path("talk", title))


@ENCYCLOPEDIA.get("/preferences")
def preferences(call: Call) -> Reply:
    chosen = dict(call.rows("SELECT name, value FROM preference"))
    lists = (choice(name, name, values, chosen[name]) for name, values in PREFERENCES.items())
    saved = tag("p", "Your preferences were saved.") if call.field("saved") else text("")
    return _page("Preferences", tag("h1", "Preferences"), saved, form("/preferences", *lists, button("Save")))


@ENCYCLOPEDIA.post("/preferences")
def set_preferences(call: Call) -> Reply:
    for name, values in PREFERENCES.items():
        if call.field(name) in values:
            call.rows("UPDATE preference SET value = ? WHERE name = ?", call.field(name), name)
    return Redirect(path("preferences", saved="1"))

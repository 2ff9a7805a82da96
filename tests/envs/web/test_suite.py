"""Test the generated sites, their tasks and their grading without a browser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import product
from random import Random
from urllib.parse import quote, urlencode

import pytest

import palestra
from palestra.browser.sites import Request
from palestra.envs.web.encyclopedia.app import ENCYCLOPEDIA
from palestra.envs.web.encyclopedia.content import library
from palestra.envs.web.suite.app import Change, SqlApp
from palestra.envs.web.suite.env import TEST_DATA, TRAIN_DATA, TURNS, SuiteStart, WebSuite, apps, is_done, templates
from palestra.envs.web.suite.markup import Html, link, tag
from palestra.envs.web.suite.tasks import NOT_POSSIBLE, TEMPLATES, Draw, Move, Stop, Task, Template
from palestra.envs.web.town.content import town
from palestra.envs.web.town.streets import COLUMNS, MAIN_SPEED, ROWS, SPEEDS, Streets
from palestra.errors import BadValue
from palestra.seeding import Rng
from tests.envs.web.text_browser import TextBrowser

ALL = list(templates().values())
OTHER_PROCESSES = {"forge", "store"}
IN_PROCESS = [template for template in ALL if OTHER_PROCESSES.isdisjoint(template.apps)]  # see conformance/test_web.py
WATCH = Change("encyclopedia", "INSERT INTO watched VALUES (?)", ("Nowhere",))


def get(url: str, body: dict[str, str] | None = None) -> Request:
    method = "GET" if body is None else "POST"
    return Request(method=method, url=f"http://encyclopedia.test{url}", headers={}, body=urlencode(body or {}).encode())


def play(start: SuiteStart, moves: Iterable[Move], task: Task) -> tuple[bool, str]:
    """Carry out moves on fresh sites; return whether the task is solved, and the texts of the pages."""
    sites = {apps()[name].host: apps()[name].launch(start.data_seed) for name in start.names}
    browser = TextBrowser(sites, apps()[start.names[0]].url)
    for move in moves:
        action = move.action(browser.nodes)
        assert action is not None, (move, browser.page.text)
        browser.do(action)
    done = is_done(task, start, browser.answer or "", browser.url, sites)
    for site in sites.values():
        site.stop()
    return done, browser.shown


@pytest.mark.parametrize("template", IN_PROCESS, ids=lambda template: template.name)
def test_the_expert_solves_and_a_mistake_does_not(template: Template) -> None:
    for data_seed in (3, 9):
        task = template.draw(Draw(Rng(data_seed + 2), data_seed))
        start = SuiteStart(template.apps, data_seed)
        done, shown = play(start, task.expert, task)
        assert done
        for text in task.evidence:
            assert text in shown
        assert not play(start, task.wrong, task)[0]
        assert not play(start, (Stop(),), task)[0]


@pytest.mark.parametrize("template", ALL, ids=lambda template: template.name)
def test_tasks_can_be_drawn_from_all_content(template: Template) -> None:
    intents = set()
    for data_seed in (*TRAIN_DATA, *TEST_DATA):
        task = template.draw(Draw(Rng(data_seed), data_seed))
        intents.add(task.intent)
        assert task.answer or task.url or task.changes
        assert 1 < len(task.expert) <= TURNS[template.level]
        assert isinstance(task.expert[-1], Stop)
        assert isinstance(task.wrong[-1], Stop)
        assert task.wrong != task.expert
        if task.answer:
            assert task.expert[-1].answer in task.answer
    assert len(intents) > 5


def test_templates_cover_all_levels_and_splits() -> None:
    levels = Counter(template.level for template in ALL)
    assert set(levels) == {1, 2, 3}
    assert len(ALL) >= 60
    assert min(levels.values()) >= 15
    assert 10 <= sum(template.held_out for template in ALL) <= len(ALL) / 3
    impossible = [t for t in ALL if t.draw(Draw(Rng(1), 3)).answer == (NOT_POSSIBLE,)]
    assert len(impossible) >= 3
    assert sum(len(template.apps) > 1 for template in ALL) >= 3


def test_splits_by_template_and_by_content() -> None:
    seen: dict[str, set[tuple[str, int]]] = {}
    for split in ("train", "test"):
        env = palestra.make("web:Mixed-v0", split=split)
        assert isinstance(env, WebSuite)
        seen[split] = set()
        for seed in range(60):
            env.start_episode(seed)
            env.setup({})
            seen[split].add((env.template.name, env.data_seed))
    assert {data for _, data in seen["train"]} <= {*TRAIN_DATA}
    assert {data for _, data in seen["test"]} <= {*TEST_DATA}
    assert not any(TEMPLATES[name].held_out for name, _ in seen["train"])
    assert any(TEMPLATES[name].held_out for name, _ in seen["test"])


def test_impossible_tasks_can_be_left_out() -> None:
    tasks: dict[bool, list[Task]] = {}
    for impossible in (True, False):
        env = palestra.make("web:Map-v0", split="test", impossible=impossible)
        assert isinstance(env, WebSuite)
        tasks[impossible] = []
        for seed in range(100):
            env.start_episode(seed)
            env.setup({})
            tasks[impossible].append(env.task)
    possible = [task for task in tasks[True] if NOT_POSSIBLE not in task.answer]
    assert 0 < len(possible) < 100
    assert all(NOT_POSSIBLE not in task.answer for task in tasks[False])
    assert [a for a, b in zip(tasks[False], tasks[True], strict=True) if a == b] == possible  # the others are the same
    chosen = WebSuite(sites="map", impossible=False)
    chosen.start_episode(1)
    chosen.setup({"template": "no_phone"})
    assert NOT_POSSIBLE in chosen.task.answer  # a given template is used


def test_arguments() -> None:
    with pytest.raises(BadValue, match="one or more of encyclopedia, map, shop, forge"):
        palestra.make("web:Mixed-v0", sites="bank")
    with pytest.raises(BadValue, match="`level` must be 1, 2, 3 or None"):
        palestra.make("web:Mixed-v0", level=4)
    env = palestra.make("web:Map-v0")
    with pytest.raises(BadValue, match="`template` must be one of"):
        env.reset(seed=1, options={"template": "watch"})


def test_grading_compares_the_whole_database() -> None:
    site = ENCYCLOPEDIA.launch(2)
    city = library(2).by_kind["city"][0].title
    watched = Change("encyclopedia", "INSERT INTO watched VALUES (?)", (city,))
    assert ENCYCLOPEDIA.has_changes(site, 2, ())
    assert not ENCYCLOPEDIA.has_changes(site, 2, (WATCH,))
    assert ENCYCLOPEDIA.has_changes(site, 2, (Change("map", "not for this site"),))
    if city in library(2).watched:
        watched = Change("encyclopedia", "DELETE FROM watched WHERE title = ?", (city,))
    assert site.respond(get(f"/watch/{city}", {})).status == 303
    assert ENCYCLOPEDIA.has_changes(site, 2, (watched,))
    assert not ENCYCLOPEDIA.has_changes(site, 2, ())
    site.respond(get(f"/talk/{city}", {"text": "and a message that nobody asked for"}))
    assert not ENCYCLOPEDIA.has_changes(site, 2, (watched,))
    assert ENCYCLOPEDIA.has_changes(ENCYCLOPEDIA.launch(2), 2, ())  # another episode is not affected
    site.stop()


def test_pages_that_do_not_exist() -> None:
    site = ENCYCLOPEDIA.launch(2)
    for url in ("/wiki/Nowhere", "/category/dragon", "/edit/Nowhere", "/talk/%00", "/history/'", "/elsewhere"):
        assert site.respond(get(url)).status == 404
    for url in ("/category/city?page=x", "/category/city?page=99", "/search?q=%25", "/search", "/new?title=%3Cb%3E"):
        assert site.respond(get(url)).status == 200
    assert site.respond(get("/wiki/Nowhere", {"x": "y"})).status == 404
    site.stop()


GROUP = re.compile(r"\(\?P<\w+>\[\^/\]\+\)")
FIELDS = (
    "body", "category", "city", "code", "email", "field", "from", "id", "kind", "list", "mode", "number", "page",
    "percent", "place", "price", "q", "quantity", "result", "shipping", "shown", "Skin", "sku", "stars", "state",
    "stock", "street", "text", "title", "to", "value",
)  # fmt: skip
ODD = (
    "",
    "0",
    "-1",
    "99999999999999999999",
    "1.5",
    "x" * 5000,
    "\0",
    "\u0661",
    "%",
    "'",
    "<b>",
    "a\r\nb",
    "\U0001f600",
)


@pytest.mark.parametrize("app", [app for app in apps().values() if isinstance(app, SqlApp)], ids=lambda app: app.name)
def test_every_handler_answers_odd_requests(app: SqlApp) -> None:
    site = app.launch(1)
    known = ("Cafe", "city", "Garden", "G100", "2001", library(1).entries[0].title, town(1).places[0].name)
    for method, pattern, _ in app.routes:
        source = GROUP.sub("{}", pattern.pattern)
        for value in (*ODD, *known):
            if not value and "{}" in source:
                continue
            url = f"{app.url.rstrip('/')}{source.replace('{}', quote(value, safe=''))}"
            fields = urlencode(dict.fromkeys(FIELDS, value))
            full = f"{url}?{fields}" if method == "GET" else url
            reply = site.respond(Request(method=method, url=full, headers={}, body=fields.encode()))
            assert reply.status in (200, 303, 404)
    site.stop()


def test_text_is_escaped() -> None:
    assert tag("p", "<b>", Html("<i>")) == "<p>&lt;b&gt;<i></p>"
    assert link('/"', "&") == '<a href="/&quot;">&amp;</a>'


@pytest.mark.parametrize("mode", SPEEDS)
def test_routes_are_the_fastest(mode: str) -> None:
    streets = Streets(Random(4))
    nodes = range(COLUMNS * ROWS)
    seconds = {(a, b): 0.0 if a == b else float("inf") for a, b in product(nodes, nodes)}
    for node in nodes:
        for part in streets.segments[node]:
            if not (mode == "Driving" and part.one_way):
                speed = MAIN_SPEED if mode == "Driving" and part.main else SPEEDS[mode]
                seconds[node, part.end] = min(seconds[node, part.end], part.meters * 3.6 / speed)
    for via, a, b in product(nodes, nodes, nodes):
        seconds[a, b] = min(seconds[a, b], seconds[a, via] + seconds[via, b])
    for start, end in ((0, 41), (41, 0), (7, 19), (30, 3), (5, 5)):
        route = streets.route(start, end, mode)
        assert route is not None
        assert route.meters == sum(leg.meters for leg in route.legs)
        assert 0 <= route.minutes * 60 - seconds[start, end] < 60 + 1e-6

"""Test WikiGame on the generated encyclopedia and on wikis served by local HTTP servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

import palestra
from palestra.core import Env
from palestra.envs.games import wiki_http
from palestra.envs.games.wiki import WorldWiki, by_distance, shortest_path
from palestra.envs.games.wiki_game import WikiGame
from palestra.envs.games.wiki_http import Kiwix, MediaWiki, wiki_at
from palestra.envs.world import World, articles
from palestra.errors import BadValue, EnvFailed, ParsingFailed
from palestra.types import Step

# WikiGame on the generated encyclopedia


def play_expert(env: Env, seed: int) -> Step:
    env.reset(seed=seed)
    step = env.step(str(env.expert_action()))
    while not step.done:
        step = env.step(str(env.expert_action()))
    return step


@pytest.mark.parametrize(("level", "min_distance", "max_distance"), [("easy", 2, 3), ("hard", 4, 6)])
def test_the_target_has_the_requested_distance_and_the_expert_takes_a_shortest_path(
    level: str, min_distance: int, max_distance: int
) -> None:
    env = palestra.make(f"game:WikiGame-v0-{level}")
    for seed in range(25):
        step = play_expert(env, seed)
        assert step.info["success"]
        assert min_distance <= step.info["turn"] <= max_distance
        assert isinstance(env, WikiGame)
        start = next(key for key in range(2000) if env._wiki.world.title(key) == env.start)  # type: ignore[attr-defined]
        path = shortest_path(env._wiki, start, env.goal.key, max_pages=10_000)
        assert path is not None
        assert len(path) == step.info["turn"]


def test_the_board_shows_the_article_and_its_links() -> None:
    world = World(0, 2000)
    pages = {article.title: article for article in articles(world)}
    env = WikiGame()
    prompt, info = env.reset(seed=4)
    article = pages[env.current.title]
    assert article.text in prompt
    assert [title for title, _ in env.current.links] == list(article.links)
    assert str(prompt).endswith(info["suffix"])
    assert all(f"- {title}\n" in info["suffix"] for title in article.links)
    assert pages[env.goal.title].text in prompt


def test_the_expert_finds_a_path_after_leaving_its_route() -> None:
    env = WikiGame(max_turns=30)
    for seed in range(10):
        env.reset(seed=seed)
        for _ in range(5):
            if env.step(env.sample_random_action()).done:
                break
        else:
            step = env.step(env.expert_action())
            while not step.done:
                step = env.step(env.expert_action())
            assert step.info["success"]


def test_lenient_title_formats() -> None:
    for write in (
        str,
        str.upper,
        lambda title: f' "{title}" ',
        lambda title: f"[[{title}]]",
        lambda t: t.replace(" ", "_"),
    ):
        env = WikiGame()
        env.reset(seed=2)
        title = env.current.links[-1][0]
        env.step(f"\\boxed{{{write(title)}}}")
        assert env.current.title == title  # fmt: skip


def test_a_title_without_a_link_costs_a_turn() -> None:
    env = WikiGame()
    env.reset(seed=2)
    here = env.current
    step = env.step("\\boxed{Nowhere}")
    assert (step.info["invalid"], step.reward, env.current, step.info["turn"]) == ("rule", 0.0, here, 1)
    step = env.step("nothing")
    assert (step.info["ending"], step.reward) == ("format", -0.1)


@pytest.mark.parametrize(("variant", "allowed"), [("noregrets", 0), ("oneback", 1), ("freenav", 2)])
def test_going_back(variant: str, allowed: int) -> None:
    env = WikiGame(variant=variant, min_distance=4, max_distance=6)
    env.reset(seed=5)
    titles = [env.current.title]
    for _ in range(2):
        env.step(env.expert_action())
        titles.append(env.current.title)
    steps = [env.step("\\boxed{<PREV_PAGE>}") for _ in range(2)]
    assert [step.info.get("invalid") is None for step in steps] == [place < allowed for place in range(2)]
    assert env.current.title == titles[2 - allowed]
    if variant == "freenav":
        assert env.step("\\boxed{back}").info["invalid"] == "rule"  # the first page has no previous page


def test_partial_credit_adds_up_to_one() -> None:
    env = WikiGame(partial_credit=True, min_distance=4, max_distance=6, max_turns=15)
    env.reset(seed=3)
    rewards = [env.step(env.expert_action()).reward for _ in range(env._distance)]
    assert sum(rewards) == pytest.approx(1.0)
    assert all(reward > 0 for reward in rewards)


def test_distances_are_shortest() -> None:
    wiki = WorldWiki(World(1, 300))
    levels, before = by_distance(wiki, 7, depth=5, max_pages=1000)
    assert len(levels) > 3
    for distance, level in enumerate(levels):
        for key in level[:10]:
            path = shortest_path(wiki, 7, key, max_pages=1000)
            assert path is not None
            assert len(path) == distance
    assert set(before) == {key for level in levels[1:] for key in level}


def test_invalid_arguments_are_rejected() -> None:
    for wrong in (
        {"min_distance": 0},
        {"min_distance": 4, "max_distance": 3},
        {"max_distance": 31},
        {"variant": "back"},
        {"summary": -1},
        {"wiki": "x:y"},
    ):
        with pytest.raises(BadValue):
            WikiGame(**wrong)
    for url in ("kiwix:http://host:80/nothing", "mediawiki:ftp://host/api.php", "kiwix:file:///etc"):
        with pytest.raises(BadValue):
            wiki_at(url)


# WikiGame on wikis served over HTTP


class Site(BaseHTTPRequestHandler):
    """HTTP server for the generated encyclopedia as a MediaWiki site and as a Kiwix book, with optional failures."""

    world: ClassVar[World] = World(1, 300)
    pages: ClassVar[dict[str, Any]] = {article.title: article for article in articles(world)}
    fail: ClassVar[list[str]] = []  # failures for the next requests: "slow", "garbage" or a status code
    requests: ClassVar[list[str]] = []
    released: ClassVar[threading.Event] = threading.Event()  # ends slow replies
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.requests.append(self.path)
        wrong = self.fail.pop(0) if self.fail else ""
        if wrong == "slow":
            self.released.wait(300)
        if wrong == "garbage":
            return self._respond("<html>unexpected content</html>", "text/html")
        if wrong.isdigit():
            return self._respond("", "text/html", int(wrong))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/w/api.php":
            return self._respond(json.dumps(self._api(query)), "application/json")
        if url.path == "/suggest":
            fitting = [title for title in self.pages if title.lower().startswith(query["term"])]
            suggestions = [
                {"value": title, "label": title, "kind": "path", "path": title.replace(" ", "_")} for title in fitting
            ]
            return self._respond(
                json.dumps([*suggestions, {"value": "x", "label": "containing x", "kind": "pattern"}]),
                "application/json",
            )
        title = unquote(url.path.removeprefix("/content/book/")).replace("_", " ")
        if title == "Old name":
            return self._respond(
                '<meta http-equiv="refresh" content="0;URL=\'./River_Wisor\'"><a href="x">x</a>', "text/html"
            )
        if title not in self.pages:
            return self._respond("no such page", "text/html", 404)
        return self._respond(self._html(title, kiwix=True), "text/html")

    def _api(self, query: dict[str, str]) -> dict[str, Any]:
        assert (query["format"], query["formatversion"]) == ("json", "2")
        if query["action"] == "query":
            titles = sorted(title for title in self.pages if title >= query.get("apfrom", ""))
            return {
                "query": {
                    "allpages": [{"pageid": 1, "ns": 0, "title": title} for title in titles[: int(query["aplimit"])]]
                }
            }
        assert query["action"] == "parse"
        title = query["page"]
        if title not in self.pages:
            return {"error": {"code": "missingtitle", "info": "The page you specified doesn't exist."}}
        links = [{"ns": 0, "title": link, "exists": True} for link in sorted(self.pages[title].links)]
        links += [{"ns": 0, "title": "Red Link", "exists": False}, {"ns": 14, "title": "Category:All", "exists": True}]
        return {"parse": {"title": title, "pageid": 1, "text": self._html(title, kiwix=False), "links": links}}

    def _html(self, title: str, *, kiwix: bool) -> str:
        text = escape(self.pages[title].text, quote=False)
        for link in self.pages[title].links:
            href = f"./{quote(link.replace(' ', '_'))}" if kiwix else f"/wiki/{quote(link.replace(' ', '_'))}"
            text = text.replace(link, f'<a href="{href}" title="{link}">{link}</a>', 1)
        first, _, rest = text.partition(". ")
        body = (
            f"<p><b>{first}</b>.<sup class='reference'><a href='#cite_note-1'>[1]</a></sup> {rest}<br>\n</p>"
            "<table class='navbox'><tr><td><p>hidden</p><a href='./River_Wisor' title='Boxed'>x</a></td></tr></table>"
            "<script>var hidden = 1;</script><a href='https://example.org/'>outside</a>"
            "<a href='geo:1,2'>map</a><a href='./File:Map.png' title='File:Map.png'>a file</a>"
        )
        if not kiwix:
            return (
                f'<div class="mw-content-ltr mw-parser-output">{body}<a href="/wiki/Red" title="Red Link">red</a></div>'
            )
        return (
            f"<!DOCTYPE html><html><head><title>{title} - a book</title><meta charset='utf-8'></head><body>"
            f"<h1 id='firstHeading'><span>{title}</span></h1><div class='mw-parser-output'>{body}</div></body>"
        )

    def _respond(self, text: str, kind: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has disconnected
            self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def wiki_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    Site.fail.clear()
    Site.released.clear()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        Site.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiki_http, "PAUSES", (0.01, 0.01))


def sources(base: str) -> dict[str, str]:
    return {"mediawiki": f"mediawiki:{base}/w/api.php", "kiwix": f"kiwix:{base}/content/book"}


@pytest.mark.parametrize("kind", ["mediawiki", "kiwix"])
def test_a_served_page_equals_its_article(kind: str) -> None:
    with wiki_server() as base:
        wiki = wiki_at(sources(base)[kind])
        for title in list(Site.pages)[::37]:
            page = wiki.page(title if kind == "mediawiki" else title.replace(" ", "_"))
            article = Site.pages[title]
            assert page is not None
            assert page.title == title
            assert page.text == article.text
            assert [title for title, _ in page.links] == list(article.links)
        assert wiki.page("No Such Page") is None


@pytest.mark.parametrize("kind", ["mediawiki", "kiwix"])
def test_the_game_is_played_and_won_on_a_served_wiki(kind: str) -> None:
    with wiki_server() as base:
        for seed in range(6):
            with palestra.make("game:WikiGame-v0-easy", wiki=sources(base)[kind]) as env:
                step = play_expert(env, seed)
                assert step.info["success"]
                assert step.info["turn"] <= 3
                again = palestra.make("game:WikiGame-v0-easy", wiki=sources(base)[kind])
                assert env.reset(seed=seed)[0] == again.reset(seed=seed)[0]  # the same seed starts the same game


def test_the_environment_variable_names_a_wiki(monkeypatch: pytest.MonkeyPatch) -> None:
    with wiki_server() as base:
        monkeypatch.setenv("PALESTRA_WIKI", sources(base)["kiwix"])
        env = WikiGame()
        env.reset(seed=1)
        assert env.current.title in Site.pages
        assert not env.inline


def test_a_served_game_can_be_forked_and_restored() -> None:
    with wiki_server() as base:
        env = WikiGame(wiki=sources(base)["mediawiki"])
        env.reset(seed=1)
        fork, restored = env.fork(), Env.restore(env.snapshot())
        action = env.expert_action()
        steps = [one.step(action) for one in (env, fork, restored)]
        assert steps[0] == steps[1] == steps[2]


def test_kiwix_follows_redirects() -> None:
    class Moved(Site):
        pages: ClassVar[dict[str, Any]] = {
            **Site.pages,
            "River Wisor": Site.pages[Site.world.title(Site.world.page("river", 0))],
        }

    server = ThreadingHTTPServer(("127.0.0.1", 0), Moved)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        page = Kiwix(f"http://127.0.0.1:{server.server_port}/content/book").page("Old_name")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert page is not None
    assert page.title == "River Wisor"


@pytest.mark.parametrize("kind", ["mediawiki", "kiwix"])
def test_a_transient_failure_is_retried(kind: str) -> None:
    with wiki_server() as base:
        wiki = wiki_at(sources(base)[kind])
        Site.fail[:] = ["503", "500"]
        assert wiki.random(Random(1))


@pytest.mark.parametrize("kind", ["mediawiki", "kiwix"])
@pytest.mark.parametrize("wrong", ["503", "403", "slow"])
def test_a_failing_server_raises_instead_of_costing_a_turn(kind: str, wrong: str) -> None:
    with wiki_server() as base:
        env = palestra.make("game:WikiGame-v0-easy", wiki=sources(base)[kind], timeout=0.3)
        Site.fail[:] = [wrong] * 9
        with pytest.raises(EnvFailed, match="is not reachable"):
            env.reset(seed=1)


def test_an_unreachable_server() -> None:
    with wiki_server() as base:
        pass
    for source in sources(base).values():
        with pytest.raises(EnvFailed, match="is not reachable"):
            WikiGame(wiki=source).reset(seed=1)


@pytest.mark.parametrize("kind", ["mediawiki", "kiwix"])
def test_an_unexpected_reply(kind: str) -> None:
    with wiki_server() as base:
        Site.fail[:] = ["garbage"]
        with pytest.raises(ParsingFailed):
            wiki_at(sources(base)[kind]).random(Random(1))


def test_a_page_of_a_kiwix_book_needs_a_heading() -> None:
    with wiki_server() as base:
        Site.fail[:] = ["garbage"]
        with pytest.raises(ParsingFailed, match="heading"):
            Kiwix(f"{base}/content/book").page("Anything")


def test_links_to_other_sites_are_ignored() -> None:
    book = Kiwix("http://host:1/content/book")
    inside = {
        "Foo": "Foo",
        "./Foo_bar": "Foo_bar",
        "../Foo": None,
        "Foo#part": "Foo",
        "#part": None,
        "Alien:_Covenant": "Alien:_Covenant",
        "https://host/x": None,
        "//host/x": None,
        "File:A.png": None,
        "/content/book/Foo": "Foo",
        "/content/other/Foo": None,
        "caf%C3%A9": "café",
        "mailto:a@b": None,
        "Category:All": None,
    }
    assert {href: book._path("Here", href) for href in inside} == inside
    assert book._path("A/Here", "../A/There") == "A/There"


def test_mediawiki_without_pages() -> None:
    class Bare(MediaWiki):
        def _query(self, **query: str | int) -> dict[str, Any]:
            return {"query": {"allpages": []}}

    with pytest.raises(EnvFailed, match="no pages"):
        Bare("http://host/w/api.php").random(Random(0))

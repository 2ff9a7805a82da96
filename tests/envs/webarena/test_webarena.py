"""Test WebArena's task configurations and evaluators, and an episode on a small site (`make conformance`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

import palestra
from palestra.browser.sites import Request, Response
from palestra.envs.webarena.evaluators import Pages, accepts_answer, accepts_url, evaluate, post_url
from palestra.envs.webarena.sites import NAMES, site_urls
from palestra.envs.webarena.tasks import read_tasks
from palestra.envs.webarena.verified import network_events
from palestra.errors import BadValue, EnvFailed, MissingExtra, UnknownEnv
from palestra.registry.agentgym_tasks import TASKS, family_envs
from tests.conformance.variants import COMPLETE

URLS = {"shopping": "http://shop.example:7770", "reddit": "http://127.0.0.1:9999/"}


def config(**evaluation: Any) -> dict[str, Any]:
    return {"intent": "Which one?", "eval": {"reference_url": "", "program_html": [], **evaluation}}


def row(number: int, site: str = "shopping", **evaluation: Any) -> dict[str, Any]:
    start = f"__{site.upper()}__/start"
    more = {"sites": [site], "task_id": number, "start_url": start, "require_login": False}
    return {**config(**evaluation), **more}


def test_ids() -> None:
    spec = palestra.get_spec("webarena:12")
    assert (spec.id, spec.kwargs["task"]) == ("webarena:12", 12)
    with pytest.raises(UnknownEnv):
        palestra.get_spec("webarena:812")
    ids = ["webarena:All-v0", "web:Map-v0"]
    assert TASKS["webarena"][1](family_envs(ids, "webarena"), 7).options == {"task": 7}
    assert TASKS["webarena"][1](family_envs(ids[1:], "webarena"), 7)[:2] == ("web:Map-v0", 7)


def test_sites_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name.upper(), raising=False)
    with pytest.raises(BadValue, match="pass urls="):
        palestra.make("webarena:12")
    with pytest.raises(BadValue, match="must start with http"):
        site_urls({"shopping": "shop.example"})
    monkeypatch.setenv("REDDIT", "http://127.0.0.1:9999/")
    assert site_urls(None) == {"reddit": "http://127.0.0.1:9999"}
    with pytest.raises(MissingExtra, match="pip install --no-deps libwebarena"):
        palestra.make("webarena:12")


def test_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    judged: dict[str, Any] = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["about ten"]}}
    path.write_text(json.dumps([row(0, eval_types=[]), row(1, **judged), row(2, "gitlab", eval_types=[])]))
    tasks = read_tasks("original", str(path), site_urls(URLS))
    assert list(tasks) == [0, 1]
    assert tasks[0].start_urls == ("http://shop.example:7770/start",)
    assert [task.needs_judge for task in tasks.values()] == [False, True]
    env = palestra.make("webarena:All-v0", tasks=str(path), urls=URLS)
    for number, message in ((1, "pass `judge`"), (2, "there is no task 2")):
        with pytest.raises(BadValue, match=message):
            env.reset(seed=1, options={"task": number})
        with pytest.raises(BadValue, match=message):
            palestra.make(f"webarena:{number}", tasks=str(path), urls=URLS)


@pytest.mark.parametrize(
    ("references", "answer", "accepted"),
    [
        ({"exact_match": "Yes"}, "'yes'", True),
        ({"exact_match": "Yes"}, "yes, it is", False),
        ({"must_include": ["red", "blue"]}, "Blue and red", True),
        ({"must_include": ["red", "blue"]}, "red", False),
        ({"must_include": ["0"]}, "10 of them", False),
        ({"must_include": ["0"]}, "There are 0.", True),
        ({"fuzzy_match": "N/A"}, "N/A", True),
        ({"fuzzy_match": "N/A"}, "it costs 5", False),
    ],
)
def test_answers(references: dict[str, Any], answer: str, accepted: bool) -> None:
    assert accepts_answer(config(reference_answers=references), answer, None) is accepted


def test_answers_for_a_judge() -> None:
    judged = config(reference_answers={"fuzzy_match": ["about ten"]})
    assert accepts_answer(judged, "10", lambda _, reference, answer: (reference, answer) == ("about ten", "10"))
    assert not accepts_answer(judged, "10", lambda *_: False)
    with pytest.raises(EnvFailed, match="pass `judge`"):
        accepts_answer(judged, "10", None)


@pytest.mark.parametrize(
    ("reference", "url", "accepted"),
    [
        ("http://s/a?q=1", "http://s/a/b?q=1&p=2", True),
        ("http://s/a?q=1", "http://s/a?q=2", False),
        ("http://s/a |OR| http://s/b", "http://s/b/", True),
        ("http://s/a", "http://s/c", False),
    ],
)
def test_addresses(reference: str, url: str, accepted: bool) -> None:
    assert accepts_url(config(reference_url=reference), url) is accepted


class Recorded(Pages):
    """Pages with fixed contents."""

    def __init__(self, contents: dict[str | None, str]) -> None:
        self.url = "http://r/f/books/12/a-title/-/comment/3"
        self.contents = contents

    def read(self, url: str | None, scripts: list[str]) -> str:
        return self.contents[url] if scripts else ""


def test_pages() -> None:
    targets = [
        {"url": "last", "locator": "document.title", "required_contents": {"exact_match": "A & B"}},
        {
            "url": "func:reddit_get_post_url('__last_url__')",
            "locator": "",
            "required_contents": {"must_include": ["one |OR| two"]},
        },
    ]
    task = config(program_html=targets, eval_types=["program_html"])
    right: dict[str | None, str] = {None: "a &amp; b", "http://r/f/books/12/": "<p>two</p>"}
    assert evaluate(task, "", Recorded(right), {}, None)
    assert not evaluate(task, "", Recorded({**right, None: "a"}), {}, None)
    assert not evaluate(task, "", Recorded({**right, "http://r/f/books/12/": "three"}), {}, None)
    assert post_url("http://r/user/x") == "http://r/user/x"


def test_network_events() -> None:
    request = Request(method="POST", url="http://s/a", headers={"Content-Type": "application/json"}, body=b'{"x": 1}')
    response = Response(status=302, headers=(("Location", "/b"), ("Set-Cookie", "k=v; Path=/")))
    (event,) = network_events([(request, response)])
    assert event["request"]["postData"] == {"mimeType": "application/json", "text": '{"x": 1}'}
    assert (event["response"]["redirectURL"], event["response"]["cookies"]) == ("/b", [{"name": "k", "value": "v"}])


class Board(BaseHTTPRequestHandler):
    """A page with a form; posts are listed for users with a cookie."""

    posts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        name = "guest" if "user=robin" not in self.headers.get("Cookie", "") else "robin"
        self._reply(f"<title>Board</title><p id=who>{name}</p><form method=post><input name=t aria-label=Post></form>")

    def do_POST(self) -> None:
        self.posts.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._reply(f"<ul>{''.join(f'<li>{post}</li>' for post in self.posts)}</ul>")

    def _reply(self, page: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def board() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Board)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


if COMPLETE:  # `make conformance`

    def test_an_episode(board: str, tmp_path: Path) -> None:
        target = {"url": "__REDDIT__/other", "locator": "document.querySelector('#who').outerText"}
        task = row(
            5,
            "reddit",
            eval_types=["string_match", "url_match", "program_html"],
            reference_answers={"exact_match": "done"},
            program_html=[{**target, "required_contents": {"exact_match": "robin"}}],
        )
        task["eval"]["reference_url"] = "__REDDIT__/start"
        task["require_login"] = True
        (tmp_path / "tasks.json").write_text(json.dumps([task]))
        cookie = {"name": "user", "value": "robin", "domain": "127.0.0.1", "path": "/", "sameSite": "Lax"}
        (tmp_path / "reddit_state.json").write_text(json.dumps({"cookies": [cookie]}))
        given: dict[str, Any] = {"tasks": str(tmp_path / "tasks.json"), "urls": {"reddit": board}}
        with palestra.make("webarena:5", **given) as env, pytest.raises(BadValue, match="needs a login on reddit"):
            env.reset(seed=1)
        with palestra.make("webarena:5", **given, auth=str(tmp_path)) as env:
            prompt, info = env.reset(seed=1)
            assert "robin" in str(prompt)
            assert info["sites"] == ["reddit"]
            field = next(node.number for node in cast("Any", env.unwrapped).state.nodes if node.name == "Post")
            shown = str(env.step(f"type [{field}] [hello] [1]").observation)
            assert "t=hello" in shown
            last = env.step("stop [done]")
            assert (last.reward, last.info["success"]) == (1.0, True)
            env.reset(seed=1)
            assert env.step("stop [not yet]").reward == 0.0
            env.reset(seed=1)
            with env.fork() as fork, pytest.raises(EnvFailed, match="cannot be forked"):
                fork.step("stop [done]")

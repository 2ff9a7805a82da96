"""Test web:File-v0 on a static site and on an application with a database, and the browser tool."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import palestra
from palestra.browser.sites import Request
from palestra.envs.web.app import PREFIX
from palestra.envs.web.tasks import WebTask, accepts_answer
from palestra.envs.world.corpus import WorldCorpus
from palestra.errors import BadValue
from palestra.tools.search.encyclopedia import encyclopedia_passages
from palestra.tools.search.site import CorpusSite

APP = """
import http.server, sqlite3, sys, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        names = [row[0] for row in sqlite3.connect('notes.db').execute('select name from notes')]
        page = '<title>Notes</title><form method=post><input name=note aria-label=Note><button>Add</button></form>'
        self.reply(200, page + ''.join(f'<p>{name}</p>' for name in names))
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length'])).decode()
        db = sqlite3.connect('notes.db')
        with db:
            db.execute('insert into notes values (?)', (urllib.parse.parse_qs(body)['note'][0],))
        self.send_response(303); self.send_header("Location", "/"); self.send_header("Content-Length", "0")
        self.end_headers()
    def reply(self, status, text):
        self.send_response(status); self.send_header('Content-Type', 'text/html'); self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *args): pass
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
"""
TASKS: list[dict[str, Any]] = [
    {"id": "price", "intent": "What does the lamp cost?", "answer": ["$12.50"]},
    {"id": "open", "intent": "Open the page of the lamp.", "url": r"http://site\.test/lamp\.html", "answer": ""},
    {"id": "tick", "intent": "Accept the terms.", "script": "document.querySelector('input').checked"},
]
NOTE = {"id": "note", "intent": "Add the note milk.", "sqlite": [
    {"database": "notes.db", "query": "select name from notes order by 1", "rows": [["bread"], ["milk"]]}
]}  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Any]:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text(
        "<title>Shop</title><a href=lamp.html>Lamp</a><input type=checkbox aria-label=Terms>"
    )
    (site / "lamp.html").write_text("<title>Lamp</title><p>Price: $12.50</p>")
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    return {"site": str(site), "tasks": str(tmp_path / "tasks.json")}


def number(observation: Any, text: str) -> str:
    line = next(line for line in str(observation).splitlines() if text in line and line.strip().startswith("["))
    return line.strip()[1:].partition("]")[0]


def test_tasks_are_graded_by_answer_address_and_page(shop: dict[str, Any]) -> None:
    with palestra.make("web:File-v0", **shop) as env:
        for task, works, fails in (
            ("price", ["stop [12.5]"], ["stop [13]"]),
            ("open", ["click Lamp", "stop"], ["stop"]),
            ("tick", ["click Terms", "stop"], ["click Lamp", "go_back", "stop"]),
        ):
            for actions, expected in ((works, 1.0), (fails, 0.0)):
                observation, info = env.reset(seed=1, options={"task": task})
                assert info["goal"] in observation
                for action in actions:
                    name = action.removeprefix("click ")
                    step = env.step(f"click [{number(observation, name)}]" if name != action else action)
                    observation = step.observation
                assert (step.reward, step.terminated, step.info["success"]) == (expected, True, expected == 1.0), task


def test_an_application_starts_with_fresh_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with sqlite3.connect(data / "notes.db") as db:
        db.execute("create table notes (name)")
        db.execute("insert into notes values ('bread')")
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tasks.json").write_text(json.dumps(NOTE))
    command = f"{sys.executable} {tmp_path}/app.py {{port}}"
    with palestra.make("web:File-v0", tasks=str(tmp_path / "tasks.json"), command=command, data=str(data)) as env:
        for text, expected in (("milk", 1.0), ("soap", 0.0)):  # the first episode's note is not in the second
            observation, _ = env.reset(seed=1)
            assert "milk" not in str(observation).partition("Task:")[2].partition("\n")[2]
            field = number(observation, "textbox 'Note'")
            step = env.step(f"type [{field}] [{text}] [1]")
            assert f"'{text}'" in step.observation
            fork = env.fork()
            assert env.step("stop").reward == expected
            assert fork.step("stop").reward == expected  # rebuilt with its own copy of the data
            fork.close()
    left = [path for path in Path("/tmp").glob(f"{PREFIX}*") if (path / "notes.db").exists()]
    assert left == []


def test_mistakes_in_task_files(tmp_path: Path, shop: dict[str, Any]) -> None:
    path = tmp_path / "bad.json"
    for rows, part in (
        ([{"id": "x"}], "intent"),
        ([{"intent": "x"}], "at least one of the criteria"),
        ([{"intent": "x", "answr": "y"}], "unknown fields: answr"),
        ([], "no task"),
    ):
        path.write_text(json.dumps(rows))
        with pytest.raises(BadValue, match=part):
            palestra.make("web:File-v0", tasks=str(path), site=shop["site"])
    with pytest.raises(BadValue, match="either `site`"):
        palestra.make("web:File-v0", tasks=shop["tasks"])


def test_answers() -> None:
    task = WebTask(id="1", intent="", answer=("1,200", "N/A"))
    assert all(accepts_answer(task, text) for text in ("1200", "$1,200.00", "n/a", "N/A."))
    assert not any(accepts_answer(task, text) for text in ("", "1201", "1200 or 1300"))


def test_the_browser_tool(shop: dict[str, Any]) -> None:
    with palestra.make("game:GuessTheNumber-v0-easy", tools=[f"browser:{shop['site']}"]) as env:
        prompt, _ = env.reset(seed=1)
        assert "http://site.test/" in prompt
        step = env.step("<browser>goto [http://site.test/]</browser>")
        assert "RootWebArea 'Shop'" in step.observation
        fork = env.fork()
        link = number(step.observation, "link 'Lamp'")
        for each in (env, fork):
            step = each.step(f"<browser>click [{link}]</browser>")
            assert "Price: $12.50" in step.observation
            assert not step.done
        step = env.step("<browser>goto [http://example.com/]</browser>")
        assert "The available sites are: http://site.test/" in step.observation
        fork.close()


def test_the_browser_tool_without_a_site_shows_the_corpus() -> None:
    corpus = WorldCorpus(seed=0, pages=100)
    _, title, text = next(iter(corpus.passages()))
    with palestra.make("qa:World-v0-1hop", pages=100, tools=["browser"]) as env:
        assert "http://site.test/ (pages with a search field)" in env.reset(seed=1)[0]
        step = env.step(f"<browser>goto [http://site.test/search?q={quote(title)}]</browser>")
        link = number(step.observation, f"link '{title}'")
        step = env.step(f"<browser>click [{link}]</browser>")
        assert f"heading '{title}'" in step.observation
        assert text[:80] in step.observation
    encyclopedia = CorpusSite()
    person = next(passage for passage in encyclopedia_passages() if " was a poet " in passage.text)
    pages = [
        encyclopedia.respond(Request(method="GET", url=f"http://site.test/{path}", headers={}))
        for path in (f"search?q={quote(person.title)}", "search?q=", "page/0", "page/9999999", "page/x", "")
    ]
    assert [page.status for page in pages] == [200, 200, 200, 404, 404, 200]
    assert f">{person.title}</a>".encode() in pages[0].body

"""Test pages, tabs, input and isolation in a real browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palestra.browser.actions import BadAction, parse_action
from palestra.browser.context import Context
from palestra.browser.episode import Episode
from palestra.browser.observation import View
from palestra.browser.sites import FolderSite, Site

INDEX = """<!doctype html><title>Shop</title><h1>Shop</h1>
<nav><a href="/second.html">Second</a> <a href="/second.html" target="_blank">In a new tab</a>
<a href="http://example.com/">Elsewhere</a></nav>
<label>Name <input id="name" placeholder="your name"></label>
<label><input type="checkbox" id="box"> I agree</label>
<select id="color"><option>Red</option><option>Green</option></select>
<input type="date" id="date"><textarea id="area">first</textarea>
<button onclick="alert('Saved ' + document.getElementById('name').value)">Save</button>
<button onclick="setTimeout(() => out.textContent = new Date().toISOString() + Math.random(), 500)">Late</button>
<form action="/second.html"><input name="q" aria-label="Query"><button>Search</button></form>
<div style="height:3000px"></div><p id="out">nothing</p><iframe srcdoc="<button>Inner</button>"></iframe>
<svg width="40" height="40"><circle cx="20" cy="20" r="10" fill="red"/></svg><div style="display:none">secret</div>
"""
SECOND = """<!doctype html><title>Second</title><p>You searched: <b id='q'></b></p>
<script>q.textContent=location.search</script>"""

BAR = """<!doctype html><title>Form</title><div style="height:560px"></div><label><input type="checkbox"> Public</label>
<div style="height:2000px"></div>
<div style="position:fixed;bottom:0;left:0;right:0;height:80px"><button>Save</button></div>
"""


@dataclass(frozen=True)
class Pages:
    folder: Path
    label: Any = None
    size: tuple[int, int] = (800, 600)

    def sites(self) -> Mapping[str, Site]:
        return {"shop.test": FolderSite(self.folder)}

    def open(self, context: Context) -> None:
        assert context.tab.navigate("http://shop.test/") is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text(INDEX)
    (folder / "second.html").write_text(SECOND)
    (folder / "bar.html").write_text(BAR)
    return folder


@pytest.fixture
def page(folder: Path) -> Iterator[Episode]:
    episode = Episode(Pages(folder), View(), milliseconds=1000)
    yield episode
    episode.release()


def number(episode: Episode, role: str, name: str = "") -> int:
    return next(node.number for node in episode.state.nodes if node.role == role and name in node.name)


def do(episode: Episode, action: str) -> str:
    return episode.perform(parse_action(action)).text()


def test_the_tree(page: Episode) -> None:
    text = page.state.text()
    assert text.startswith("Tab 0 (current): Shop\n[1] RootWebArea 'Shop' focused: True\n\t[2] heading 'Shop'\n")
    for line in (
        "link 'Second'",
        "textbox 'Name'",
        "checkbox 'I agree' checked: False",
        "option 'Red' selected: True",
        "textbox '' value: first multiline: True",
        "button 'Inner'",
        "circle '' fill: red",
    ):
        assert line in text
    assert "secret" not in text


def test_typing_and_choosing(page: Episode) -> None:
    name = number(page, "textbox", "Name")
    do(page, f"type [{name}] [Ann] [0]")
    assert "textbox 'Name' focused: True value: 'Ann Lee'" in do(page, f"type [{name}] [ Lee] [0]")
    assert "value: Bob" in do(page, f"fill [{name}] [Bob]")
    assert "checked: True" in do(page, f"click [{number(page, 'checkbox')}]")
    assert "option 'Green' selected: True" in do(page, f"select [{number(page, 'combobox')}] [green]")
    assert "option 'Red' selected: True" in do(page, f"click [{number(page, 'option', 'Red')}]")
    date = next(node.number for node in page.state.nodes if node.role == "textbox" and not node.name)
    assert "value: 2020-02-29" in do(page, f"fill [{date}] [2020-02-29]")
    assert "A dialog was shown: Saved Bob" in do(page, f"click [{number(page, 'button', 'Save')}]")


def test_an_element_below_a_fixed_bar_is_scrolled_before_it_is_clicked(page: Episode) -> None:
    do(page, "goto [http://shop.test/bar.html]")
    assert "checkbox 'Public' focused: True checked: True" in do(page, f"click [{number(page, 'checkbox')}]")


def test_the_clipboard_belongs_to_the_context(page: Episode) -> None:
    area, name = page.state.nodes[0].number, number(page, "textbox", "Name")
    area = next(node.number for node in page.state.nodes if node.props.get("multiline"))
    for action in (f"click [{area}]", "press [Control+a]", "press [Control+c]", f"click [{name}]", "press [Control+v]"):
        text = do(page, action)
    assert "textbox 'Name' focused: True value: first" in text


def test_navigation_and_tabs(page: Episode) -> None:
    text = do(page, f"click [{number(page, 'link', 'Second')}]")
    assert text.startswith("Tab 0 (current): Second")
    assert page.state.url == "http://shop.test/second.html"
    assert "'Shop'" in do(page, "go_back")
    with pytest.raises(BadAction, match="no earlier page"):
        do(page, "go_back")
    assert "Second" in do(page, "go_forward")
    do(page, "go_back")
    text = do(page, f"click [{number(page, 'link', 'In a new tab')}]")
    assert text.startswith("Tab 0: Shop | Tab 1 (current): Second")
    assert page.context().tabs[0].evaluate("__palestra.opening") is False  # tab 0 waits for no further tab
    assert do(page, "tab_focus [0]").startswith("Tab 0 (current): Shop | Tab 1: Second")
    with pytest.raises(BadAction, match="There is no tab 7"):
        do(page, "tab_focus [7]")
    do(page, "tab_focus [1]")
    assert do(page, "close_tab").startswith("Tab 0 (current): Shop\n")
    assert do(page, "new_tab").startswith("Tab 0: Shop | Tab 1 (current): ")
    assert do(page, "goto [http://shop.test/second.html]").startswith("Tab 0: Shop | Tab 1 (current): Second\n")
    assert do(page, "close_tab").startswith("Tab 0 (current): Shop\n")
    query = number(page, "textbox", "Query")
    assert "?q=kayak" in do(page, f"type [{query}] [kayak] [1]")


def test_windows_with_an_opener(page: Episode) -> None:
    """Check a window that blocks the page that has opened it until the window is set up."""
    page.evaluate("window.onkeydown = () => { window.open('/second.html', 'named') }")
    assert do(page, "press [a]").startswith("Tab 0: Shop | Tab 1 (current): Second\n")
    assert page.context().tab.evaluate("__palestra.leaving") is False
    assert do(page, "close_tab").startswith("Tab 0 (current): Shop\n")


def test_other_sites_cannot_be_reached(page: Episode) -> None:
    text = do(page, f"click [{number(page, 'link', 'Elsewhere')}]")
    assert "http://example.com/ was not opened, because its site is not available.\n[1] RootWebArea 'Shop'" in text
    for url in ("http://example.com", "file:///etc/passwd", "javascript:alert(1)", "chrome://version"):
        with pytest.raises(BadAction, match="The available sites are: http://shop.test/"):
            do(page, f"goto [{url}]")
    script = "fetch('http://127.0.0.1:1/').then(() => 'reached', () => 'blocked')"
    assert page.evaluate(script) == "blocked"
    socket = "const s = new WebSocket('ws://127.0.0.1:9'); s.onerror = () => r('blocked'); s.onopen = () => r('open')"
    assert page.evaluate(f"new Promise(r => {{ {socket} }})") == "blocked"


def test_windows_load_no_pages_of_the_browser_itself(page: Episode) -> None:
    targets = page.context().connection.call("Target.getTargets", {"filter": [{}]})["targetInfos"]
    assert {target["type"] for target in targets} <= {"page", "tab"}


def test_files_outside_the_folder_are_not_served(folder: Path) -> None:
    from palestra.browser.sites import Request

    (folder.parent / "outside.txt").write_text("secret")
    reply = FolderSite(folder).respond(Request(method="GET", url="http://shop.test/../outside.txt", headers={}))
    assert reply.status == 404


def test_mistakes_change_nothing(page: Episode) -> None:
    before = page.state.text()
    for action, part in (
        ("click [999]", "There is no element [999]"),
        (f"type [{number(page, 'heading')}] [x] [0]", "is not a text field"),
        (f"select [{number(page, 'combobox')}] [Blue]", "has no option 'Blue'; the options are 'Red', 'Green'"),
        ("press [Foo]", "is not a key"),
    ):
        with pytest.raises(BadAction) as caught:
            do(page, action)
        assert part in str(caught.value)
    assert page.state.text() == before


def test_time_and_chance_depend_only_on_the_actions(folder: Path) -> None:
    texts = []
    for _ in range(2):
        episode = Episode(Pages(folder), View(), milliseconds=1000)
        do(episode, f"click [{number(episode, 'button', 'Late')}]")
        texts.append(do(episode, "scroll [down]"))
        episode.release()
    assert texts[0] == texts[1]
    assert "2024-01-01T10:00:0" in texts[0]


def test_viewport_html_and_screenshot(folder: Path) -> None:
    for view in (View(viewport_only=True), View(form="html"), View(form="screenshot")):
        episode = Episode(Pages(folder), view, milliseconds=0)
        state = episode.state
        if view.form == "html":
            assert '<button bid="' in state.text("html")
            assert "secret" not in state.html
        elif view.form == "screenshot":
            assert state.image.startswith(b"\x89PNG")
            assert episode.evaluate("document.getElementById('__palestra_marks')") is None
        else:
            assert not any(node.role == "circle" for node in state.nodes)
            assert any(node.role == "circle" for node in episode.perform(parse_action("scroll_by [0] [9999]")).nodes)
        episode.release()

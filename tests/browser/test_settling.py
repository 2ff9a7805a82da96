"""Test that observations do not depend on the speed of the browser and the sites."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palestra.browser.actions import parse_action
from palestra.browser.context import Context
from palestra.browser.episode import Episode
from palestra.browser.observation import View
from palestra.browser.sites import Request, Response, Site

PAGE = b"""<!doctype html><title>Inbox</title><style>
#icon{content:url(icon.svg);height:12px} .card{width:300px;height:300px} .card:hover{background:#ff0000;cursor:pointer}
</style><button id=open style="width:200px;height:100px" onclick="show()">Open</button>
<p id=data>empty</p><p id=time></p>
<script>
moves = 0; addEventListener('mousemove', () => moves++)
setInterval(() => time.textContent = Date.now(), 100)
function show() {
  document.body.insertAdjacentHTML('beforeend', '<span id=icon></span>'); icon.addEventListener('click', () => 1)
  fetch('data').then(r => r.text()).then(text => { data.textContent = text; setTimeout(() => data.append('!'), 100) })
  document.body.insertAdjacentHTML('afterbegin', '<div class=card>Card</div>')
}</script>"""
SCRIPTED = b"""<!doctype html><title>Scripts</title><p id=data>empty</p>
<script>__palestra.pass(1, 1000)</script><script src=slow.js></script>"""  # the first turn, before the script has run
SCRIPT = b"setTimeout(() => data.textContent = 'shown', 500)"
ICON = b'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24"><rect width="24" height="24"/></svg>'


class SlowSite:
    """Delays every response except the pages themselves by `wait` seconds."""

    quick = False

    def __init__(self, wait: float) -> None:
        self.wait = wait

    def respond(self, request: Request) -> Response:
        path = request.url.rpartition("/")[2]
        if path not in ("", "scripted"):
            threading.Event().wait(self.wait)
        body = {"": PAGE, "scripted": SCRIPTED, "icon.svg": ICON, "slow.js": SCRIPT, "data": b"loaded"}.get(path, b"")
        kind = {"icon.svg": "image/svg+xml", "slow.js": "text/javascript"}.get(path, "text/html")
        return Response(status=200, headers=(("Content-Type", kind),), body=body)


@dataclass(frozen=True)
class SlowStart:
    wait: float
    path: str = ""
    label: Any = None
    size: tuple[int, int] = (800, 600)

    def sites(self) -> Mapping[str, Site]:
        return {"slow.test": SlowSite(self.wait)}

    def open(self, context: Context) -> None:
        assert context.tab.navigate(f"http://slow.test/{self.path}") is None


def test_an_observation_waits_for_pictures_requests_and_hover() -> None:
    texts = []
    for wait in (0.0, 0.3):
        episode = Episode(SlowStart(wait), View(), milliseconds=1000)
        button = next(node.number for node in episode.state.nodes if node.role == "button")
        texts.append(episode.perform(parse_action(f"click [{button}]")).text())
        assert episode.evaluate("moves") == 1
        episode.release()
    assert texts[0] == texts[1]
    assert "clickable 'Card' color: red" in texts[0]  # the card is now below the mouse
    assert "class: icon" in texts[0]  # the picture, which gives the element its size
    assert "paragraph 'loaded!'" in texts[0]
    assert "paragraph '1704103202000'" in texts[0]  # two turns have passed: the first observation and the click


def test_time_passes_only_after_the_scripts_of_a_page_have_run() -> None:
    episode = Episode(SlowStart(0.1, "scripted"), View(), milliseconds=1000)
    assert "paragraph 'shown'" in episode.state.text()
    episode.release()

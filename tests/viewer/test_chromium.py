"""Test the viewer in Chromium: every view at desktop and phone width, with mouse and keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from palestra.browser.executable import FLAGS, find_browser
from tests.viewer.sample_runs import GUESS, NASTY, training_run, training_step
from tests.viewer.server import Server

DESKTOP, PHONE = 1280, 390
STEP = "trajectories/step-000001.jsonl.gz"
FITS = "() => document.documentElement.scrollWidth <= window.innerWidth"
EVALUATIONS = {"before": "evaluated/random", "after": "evaluated/expert"}
# Brightness of the text and of the background, from 0 to 765
COLORS = """() => ["color", "backgroundColor"].map((name) =>
  getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)
)"""
WAIT = 120_000  # milliseconds; the machine may be busy

expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        quiet = next(flag for flag in FLAGS if flag.startswith("--disable-features="))  # fewer processes per window
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", quiet])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> BrowserContext:
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(WAIT)
    return context


@pytest.fixture(scope="module")
def shared(context: BrowserContext) -> Page:
    """Return the page that most tests share, because a new one takes half a second of CPU time."""
    return context.new_page()


class Tab:
    """Browser page at a width. It records errors, dialogs and external requests until `close`."""

    def __init__(self, page: Page, width: int) -> None:
        self.page = page
        page.set_viewport_size({"width": width, "height": 844})
        self.errors: list[str] = []
        self._handlers: dict[Any, Any] = {
            "console": lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None,
            "pageerror": lambda err: self.errors.append(str(err)),
            "dialog": self._dialog,
            "requestfailed": lambda r: self.errors.append(f"{r.url}: {r.failure}"),
        }
        for event, handler in self._handlers.items():
            page.on(event, handler)

    def _dialog(self, box: Dialog) -> None:
        self.errors.append(f"unexpected dialog: {box.message}")
        box.dismiss()

    def open(self, address: str) -> Page:
        # If only the fragment of the address changes, the previous view would stay until the new one is loaded.
        self.page.evaluate("document.querySelector('main')?.replaceChildren()")
        self.page.goto(address)
        return self.page

    def close(self) -> None:
        for event, handler in self._handlers.items():
            self.page.remove_listener(event, handler)
        self.page.goto("about:blank")
        errors = [text for text in self.errors if "ERR_ABORTED" not in text]  # canceled by a new view
        assert errors == []


@pytest.fixture(params=[DESKTOP, PHONE])
def tab(request: pytest.FixtureRequest, shared: Page) -> Iterator[Tab]:
    tab = Tab(shared, request.param)
    yield tab
    tab.close()


@pytest.fixture
def desktop(shared: Page) -> Iterator[Tab]:
    tab = Tab(shared, DESKTOP)
    yield tab
    tab.close()


def view(server: Server, name: str = "", **params: object) -> str:
    return f"{server.address}#/{name}?{urlencode(params, doseq=True)}"


@pytest.fixture(scope="module")
def ready(server: Server) -> Server:
    for run, episodes in {
        "trained": 32,
        "expert": 8,
        "random": 8,
        "failing": 6,
        "nasty": 1,
        "evaluated/random": 8,
        "evaluated/expert": 8,
    }.items():
        server.until_read(run, episodes)
    return server


def test_every_view_fits_the_width_without_errors(ready: Server, shared: Page) -> None:
    """Follow links to every view at phone width, and then widen the window."""
    one = {"run": "trained", "at": f"{STEP}:0"}
    nasty = {"run": "nasty", "at": "episodes.jsonl:0"}
    both = {"a_run": "expert", "a_at": "episodes.jsonl:0", "b_run": "random", "b_at": "episodes.jsonl:0"}
    views = {  # consecutive views differ in the element that is expected, so that each one is waited for
        view(ready): ".page.runs tbody tr",
        view(ready, "curves", run=["trained", "deeper/other"]): ".page.curves .chart path.line",
        view(ready, "run", run="trained"): ".page.run .tile b",
        view(ready, "episodes", run="trained"): ".page.episodes tbody tr",
        view(ready, "run", run="nasty"): ".page.run .tile b",
        view(ready, "episodes", run="nasty"): ".page.episodes tbody tr",
        view(ready, "episode", **one): ".page.episode .message.agent",
        view(ready, "episode", **one, view="tokens"): ".page.episode .tok.sampled",
        view(ready, "episode", **nasty): ".page.episode img.shown",
        view(ready, "episode", **nasty, view="tokens"): ".page.episode .empty",
        view(ready, "compare", **both): ".page.compare .pair .message",
        view(ready, "comparison", **EVALUATIONS): ".page.comparison tbody tr",
        view(ready, "play"): ".page.play .env-card",
    }
    tab = Tab(shared, PHONE)
    page = tab.page
    for address, selector in views.items():
        page.set_viewport_size({"width": PHONE, "height": 844})
        page.goto(address)
        expect(page.locator(selector).first).to_be_visible()
        page.wait_for_function(FITS)  # charts are drawn again after the window has changed
        page.set_viewport_size({"width": DESKTOP, "height": 844})
        expect(page.locator(selector).first).to_be_visible()
        page.wait_for_function(FITS)  # charts are drawn again after the window has changed
        light = page.evaluate(COLORS)
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(COLORS)
        page.emulate_media(color_scheme="light")
        assert (light[0] < light[1], dark[0] < dark[1]) == (True, False), (
            address
        )  # text and background colors are swapped
        assert page.title() != ""
    tab.close()


def test_markup_in_episodes_is_shown_as_text(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready, "episode", run="nasty", at="episodes.jsonl:0"))
    expect(page.locator(".message.agent pre").first).to_have_text(f"</pre>{NASTY}")
    assert page.locator("main script, main img:not(.shown)").count() == 0
    shown = page.locator("img.shown").first
    expect(shown).to_have_js_property("naturalWidth", 32)  # the image was loaded


def test_runs_are_filtered_and_their_curves_compared(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(9)
    page.get_by_label("Filter").fill("rebn train")
    expect(rows).to_have_count(1)
    page.reload()  # the filter is part of the URL
    expect(rows).to_have_count(1)
    page.get_by_label("Filter").fill("")
    page.get_by_label("Kind").select_option("train")
    expect(rows).to_have_count(2)
    for box in page.locator("tbody input[type=checkbox]").all():
        box.check()
    page.get_by_text("Curves of 2").click()
    large = page.locator("section.card")
    expect(large.locator("path.line")).to_have_count(2)
    expect(large.locator("circle.dot")).to_have_count(3)  # one run has two evaluations and the other has one
    expect(large.locator("text.stage").first).to_have_text("2 turns")
    before = large.locator("path.line").first.get_attribute("d")
    page.get_by_label("Smoothing").evaluate("e => { e.value = 0; e.dispatchEvent(new Event('input')) }")
    assert large.locator("path.line").first.get_attribute("d") != before
    page.locator("select[name=x]").select_option("tokens")
    expect(page).to_have_url(re.compile("x=tokens.*smooth=0$"))
    large.locator("svg").hover()
    expect(large.locator(".tip")).to_contain_text("trained")
    page.get_by_role("button", name="Entropy").click()
    expect(large.locator("h2")).to_have_text("Entropy")


def test_runs_are_sorted_by_column_and_show_their_state(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready, kind="eval"))
    names = page.locator("tbody td:nth-child(2) a")
    page.get_by_role("button", name="success").click()
    expect(names).to_have_text(["evaluated/expert", "nasty", "evaluated/random"])
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("success")
    page.get_by_role("button", name="success").click()
    expect(names).to_have_text(["evaluated/random", "evaluated/expert", "nasty"])
    page.get_by_role("button", name="run", exact=True).click()
    expect(page).to_have_url(re.compile("sort=name"))
    expect(names).to_have_text(["evaluated/expert", "evaluated/random", "nasty"])
    expect(page.locator("tbody tr").first).to_contain_text("finished")


def test_two_evaluations_are_compared_task_by_task(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready, kind="eval", sort="name"))
    for name in EVALUATIONS.values():
        page.get_by_label(f"select {name}").check()
    page.get_by_text("Compare 2 evaluations").click()
    result = ready.get("comparison", **EVALUATIONS)
    row = page.locator("table.comparison tbody tr")
    expect(row).to_contain_text(f"+{100 * result['total']['difference']:.1f} points")
    page.get_by_text("Swap").click()
    expect(row).to_contain_text(f"\N{MINUS SIGN}{100 * result['total']['difference']:.1f} points")
    seed = result["envs"][0]["wins"][0]["seed"]
    page.get_by_role("link", name=re.compile(f"seed {seed}$")).click()
    expect(page.locator("h1")).to_contain_text("the same task")


def test_boards_are_drawn_and_an_episode_is_shared(
    ready: Server, desktop: Tab, browser: Browser, tmp_path: Path
) -> None:
    page = desktop.open(view(ready, "episode", run="expert", at="episodes.jsonl:0"))  # Sokoban
    expect(page.locator(".cells .player").first).to_be_visible()
    expect(page.get_by_text("Draw states")).to_have_count(0)  # the environment has no renderer
    page.goto(view(ready, "episode", run="expert", at="episodes.jsonl:4"))  # Sudoku, 4 x 4
    board = page.locator(".cells").first
    expect(board.locator(".digit")).to_have_count(16)
    with page.expect_download() as download:
        page.get_by_text("Share").click()
    shared = tmp_path / download.value.suggested_filename
    download.value.save_as(shared)
    alone = browser.new_page(java_script_enabled=False)
    alone.goto(shared.as_uri())
    expect(alone.locator(".message.agent").first).to_contain_text("boxed")
    assert alone.locator("link, script").count() == 0  # nothing is loaded from elsewhere
    alone.close()


def test_curves_have_axis_labels_and_reference_rates(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready, "run", run="trained"))
    labels = page.locator("section.card text.axis")
    expect(labels).to_have_text(["steps", "Success"])
    expect(page.locator("section.card text.reference")).to_have_text(["random", "expert"])


def test_episodes_are_filtered_by_the_server(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready, "episodes", run="failing"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(6)
    page.get_by_label("Error").select_option("any")
    expect(rows.first).to_contain_text("failed")
    failed = rows.count()
    assert 0 < failed < 6
    page.get_by_label("Outcome").select_option("unsolved")
    expect(page.get_by_text("No matching episodes.")).to_be_visible()
    page.get_by_label("Error").select_option("")
    expect(rows).to_have_count(6 - failed)
    page.get_by_label("Turns from").fill("99")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No matching episodes.")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(6)
    page = desktop.open(view(ready, "episodes", run="failing", error="any"))
    rows.first.locator("a").click()
    expect(page.locator(".problem")).to_contain_text("EngineFailed at the engine")


def test_an_episode_is_navigated_with_the_keyboard(ready: Server, desktop: Tab) -> None:
    page = desktop.open(view(ready, "episodes", run="trained", step=1))
    expect(page.locator("tbody tr")).to_have_count(8)
    for key in "jj":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator(".crumbs")).to_contain_text(f"{STEP}:1")
    expect(page.locator(".message.agent").first).to_contain_text("advantage")
    expect(page.locator("main")).to_contain_text("from the stored rewards of the 8 episodes of step 1")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".crumbs")).to_contain_text(f"{STEP}:2")
    for n in (1, 0):
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".crumbs")).to_contain_text(f"{STEP}:{n}")
    expect(page.locator(".button.off")).to_have_count(1)  # the filtered list has no previous episode
    page.keyboard.press("j")
    expect(page.locator(".turn.current")).to_have_id("turn-0")
    expect(page).to_have_url(re.compile("turn=1$"))
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next turn")
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    expect(page.locator("tbody tr")).to_have_count(8)
    page.go_back()
    expect(page.locator(".message.agent").first).to_be_visible()


def test_tokens_distinguish_sampled_from_prompt(ready: Server, tab: Tab) -> None:
    at = f"{STEP}:0"
    spans = ready.get("tokens", run="trained", at=at)["sequences"][0]["spans"]
    page = tab.open(view(ready, "episode", run="trained", at=at))
    expect(page.locator(".message.agent").first).to_be_visible()
    page.keyboard.press("t")
    tokens = page.locator(".tokens")
    expect(tokens.locator(".tok.sampled")).to_have_count(sum(len(s["ids"]) for s in spans if not s["is_prompt"]))
    expect(tokens.locator(".tok.prompt")).to_have_count(sum(len(s["ids"]) for s in spans if s["is_prompt"]))
    expect(tokens.locator(".tok.sampled.good, .tok.sampled.poor").first).to_be_visible()
    last = tokens.locator(".tok.sampled").nth(1)
    last.click()
    expect(page.locator(".token-panel")).to_contain_text(
        re.compile(r"sampled in turn 1.*probability 90\.48%.*advantage")
    )
    tokens.locator(".tok.prompt").first.click()
    expect(page.locator(".token-panel")).to_contain_text("prompt token")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".token-panel")).to_contain_text("token 2,")
    page.get_by_label("sampled only").check()
    expect(tokens.locator(".tok.prompt").first).to_be_hidden()


def test_two_episodes_side_by_side(ready: Server, tab: Tab) -> None:
    page = tab.open(view(ready, "episodes", run="expert"))
    page.locator("tbody tr").nth(1).get_by_text("mark").click()
    page = tab.page
    page.goto(view(ready, "episode", run="random", at="episodes.jsonl:1"))
    page.get_by_text("Compare with marked").click()
    expect(page.locator("h1")).to_contain_text("the same task")
    heads = page.locator(".pair.heads .side")
    expect(heads.nth(0)).to_contain_text("expert / episodes.jsonl:1")
    expect(heads.nth(1)).to_contain_text("random / episodes.jsonl:1")
    page.get_by_text("Swap").click()
    expect(heads.nth(0)).to_contain_text("random / episodes.jsonl:1")
    page.goto(view(ready, "episode", run="expert", at="episodes.jsonl:2"))
    page.locator(".card").get_by_text("compare").click()
    expect(page.locator(".pair.heads .side").nth(1)).to_contain_text("random / episodes.jsonl:2")


def test_a_person_plays_and_saves_the_episode(shared: Page, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    server = Server(tmp_path / "runs", tmp_path / "cache")
    tab = Tab(shared, PHONE)
    try:
        page = tab.open(view(server, "play"))
        page.get_by_label("Environment").fill("guessthenumber easy")
        page.get_by_label("Seed").fill("7")
        page.locator(f"[data-env='{GUESS}']").click()
        move = page.get_by_label("your action")
        for _ in range(4):
            page.get_by_text("Ask the expert").click()
            expect(move).not_to_have_value("")
            move.press("Enter")
            expect(page.locator(".over").or_(page.locator("textarea:placeholder-shown"))).to_be_visible()
            if page.locator(".over").count():
                break
        expect(page.locator(".over")).to_contain_text("solved")
        page.get_by_text("Save as trajectory").click()
        page.locator(".saved a").click()
        expect(page.locator(".facts")).to_contain_text("player human")
        page.goto(view(server))
        expect(page.locator("tbody tr")).to_contain_text("played")
        tab.close()
    finally:
        assert server.close() == ""


def test_the_page_of_a_running_training_is_updated(context: BrowserContext, tmp_path: Path) -> None:
    run = training_run(tmp_path / "runs" / "now", steps=0)  # a run that has just started
    server = Server(tmp_path / "runs", tmp_path / "cache")
    tabs = [Tab(context.new_page(), DESKTOP) for _ in range(3)]
    for tab in tabs:  # poll ten times as often
        tab.page.add_init_script("const wait = setTimeout; window.setTimeout = (call, ms) => wait(call, ms / 10)")
    try:
        curves = tabs[0].open(view(server, "run", run="now"))
        listed = tabs[1].open(view(server, "episodes", run="now"))
        runs = tabs[2].open(view(server))
        expect(curves.locator("h1")).to_contain_text("running")
        expect(curves.locator(".tile").filter(has_text="steps").first).to_contain_text("0of 6")
        expect(listed.locator(".total")).to_contain_text("No matching episodes")
        expect(runs.locator("tbody tr")).to_have_count(1)
        for step in (0, 1, 2):
            training_step(run, step)
        training_run(tmp_path / "runs" / "another", steps=1)
        expect(listed.locator(".total")).to_contain_text("24 episodes")
        expect(curves.locator("section.card circle.dot")).to_have_count(1)
        expect(curves.locator(".tile", has_text="episodes stored")).to_contain_text("24")
        expect(runs.locator("tbody tr")).to_have_count(2)
        for step in (3, 4, 5):
            training_step(run, step)
        expect(curves.locator("h1")).to_contain_text("finished")  # all planned steps are complete
        for tab in tabs:
            tab.close()
    finally:
        assert server.close() == ""


def test_token_is_requested_once(browser: Browser, tmp_path: Path) -> None:
    training_run(tmp_path / "runs" / "t", steps=1)
    server = Server(tmp_path / "runs", tmp_path / "cache", "--token", "sesame")
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(server.address)
        page.get_by_label("Token").fill("sesame")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "sesame" not in page.url
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(1)
    finally:
        context.close()
        assert server.close() == ""

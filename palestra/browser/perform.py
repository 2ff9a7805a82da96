"""Carry out commands in a browser context with mouse and keyboard events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from palestra.browser.actions import BadAction, Command
from palestra.browser.connection import ProtocolError
from palestra.browser.context import MAX_TABS, Context, quoted
from palestra.browser.keyboard import Calls, key_events, parse_keys, text_events
from palestra.browser.tab import Tab

NAVIGATION_SECONDS = 2.0  # maximum time to wait for an announced navigation to start
DRAG_STEPS = 5
OVERSHOOT = 4  # pixels
PICKERS = frozenset({"date", "month", "week", "time", "datetime-local", "range", "color"})  # inputs without text
_SCROLLS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def perform(context: Context, command: Command) -> None:
    """Carry out a command; if it is not possible, raise BadAction and leave the page unchanged."""
    _PERFORM[command.name](context, *command.args)


def _locate(tab: Tab, number: int) -> dict[str, Any]:
    place: dict[str, Any] = tab.evaluate(f"__palestra.locate({number})")
    if "error" in place:
        raise BadAction(_sentence(place["error"]))
    return place


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def mouse(kind: str, x: float, y: float, *, pressed: bool = False, count: int = 1) -> tuple[str, dict[str, Any]]:
    button = "none" if kind == "mouseMoved" and not pressed else "left"
    params = {"type": kind, "x": x, "y": y, "button": button, "buttons": 1 if pressed else 0}
    if kind != "mouseMoved":
        params["clickCount"] = count
    return "Input.dispatchMouseEvent", params


def click_events(x: float, y: float, clicks: int = 1) -> Calls:
    calls = [mouse("mouseMoved", x, y)]
    for count in range(1, clicks + 1):
        calls += [
            mouse("mousePressed", x, y, pressed=True, count=count),
            mouse("mouseReleased", x, y, count=count),
        ]
    return calls


def _click(context: Context, number: int, clicks: int = 1) -> None:
    tab = context.tab
    place = _locate(tab, number)
    if place.get("option"):
        _choose(tab, number, None)
    else:
        tab.call_all(click_events(place["x"], place["y"], clicks))


def _choose(tab: Tab, number: int, labels: tuple[str, ...] | None) -> None:
    script = f"__palestra.choose({number},{quoted(labels)})"
    error = tab.evaluate(script, gesture=True)
    if error:
        raise BadAction(_sentence(error))


def _hover(context: Context, number: int) -> None:
    place = _locate(context.tab, number)
    context.tab.call_all([mouse("mouseMoved", place["x"], place["y"])])


def _focus(context: Context, number: int) -> None:
    _locate(context.tab, number)
    context.tab.evaluate(f"__palestra.focus({number})")


def _field(tab: Tab, number: int) -> dict[str, Any]:
    place = _locate(tab, number)
    kind = place["type"]
    field = place["tag"] == "TEXTAREA" or place["editable"]
    field = field or (
        place["tag"] == "INPUT" and kind not in ("checkbox", "radio", "button", "submit", "reset", "file")
    )
    if not field:
        raise BadAction(f"Element [{number}] is not a text field.")
    if place["disabled"] or place["readonly"]:
        raise BadAction(f"Element [{number}] is disabled or read-only.")
    return place


def _type(context: Context, number: int, text: str, enter: bool = True) -> None:
    tab = context.tab
    place = _field(tab, number)
    if place["type"] in PICKERS:
        tab.evaluate(f"__palestra.setValue({number},{quoted(text)})", gesture=True)
    else:
        tab.call_all([*click_events(place["x"], place["y"]), *key_events(0, "End"), *text_events(text)])
    if enter:
        tab.call_all(key_events(0, "Enter"))


def _fill(context: Context, number: int, text: str) -> None:
    tab = context.tab
    place = _field(tab, number)
    if place["type"] in PICKERS:
        tab.evaluate(f"__palestra.setValue({number},{quoted(text)})", gesture=True)
        return
    tab.call_all(click_events(place["x"], place["y"]))
    tab.evaluate(f"__palestra.selectContent({number})")
    tab.call_all(text_events(text) if text else key_events(0, "Delete"))


def _drag(context: Context, first: int, second: int) -> None:
    tab = context.tab
    _locate(tab, second)
    start = _locate(tab, first)
    end: dict[str, Any] = tab.evaluate(f"__palestra.locate({second})")  # after scrolling to `first`
    if start.get("option") or end.get("option"):
        raise BadAction("An option in a list cannot be dragged.")
    # Lists change their order only after the middle of an item has been passed.
    further = [OVERSHOOT * ((end[axis] > start[axis]) - (end[axis] < start[axis])) for axis in ("x", "y")]
    _mouse_drag(context, start["x"], start["y"], end["x"] + further[0], end["y"] + further[1])


def _mouse_drag(context: Context, x: float, y: float, to_x: float, to_y: float) -> None:
    steps = [
        (x + (to_x - x) * step / DRAG_STEPS, y + (to_y - y) * step / DRAG_STEPS) for step in range(1, DRAG_STEPS + 1)
    ]
    context.tab.call_all([mouse("mouseMoved", x, y), mouse("mousePressed", x, y, pressed=True)])
    for place in steps:  # separate calls, because the browser merges moves that wait for the same frame
        context.tab.call_all([mouse("mouseMoved", *place, pressed=True)])
    context.tab.call_all([mouse("mouseReleased", to_x, to_y)])


def _select_text(context: Context, number: int, start: int, end: int) -> None:
    _locate(context.tab, number)
    context.tab.evaluate(f"__palestra.selectText({number},{start},{end})")


def _press(context: Context, keys: str) -> None:
    modifiers, key = parse_keys(keys)
    tab = context.tab
    # The browser's clipboard would be shared by all environments, so each context has its own.
    if modifiers & 6 and key.lower() in ("c", "x"):
        context.clipboard = str(tab.evaluate(_SELECTION) or context.clipboard)
    tab.call_all(key_events(modifiers, key))
    if modifiers & 6 and key.lower() == "x":
        tab.call_all(key_events(0, "Delete"))
    elif modifiers & 6 and key.lower() == "v" and context.clipboard:
        tab.call_all([("Input.insertText", {"text": context.clipboard})])


_SELECTION = """(() => {
  const e = document.activeElement;
  if (e && typeof e.selectionStart === 'number') return e.value.slice(e.selectionStart, e.selectionEnd);
  return String(getSelection());
})()"""


def _press_on(context: Context, number: int, keys: str) -> None:
    parse_keys(keys)
    _focus(context, number)
    _press(context, keys)


def _scroll(context: Context, direction: str) -> None:
    x, y = _SCROLLS[direction]
    context.tab.evaluate(f"__palestra.scroll({x}*innerWidth*0.9,{y}*innerHeight*0.9)")


def _tab_focus(context: Context, index: int) -> None:
    if index >= len(context.tabs):
        raise BadAction(f"There is no tab {index}; the tabs are 0 to {len(context.tabs) - 1}.")
    context.select_tab(index)


def _new_tab(context: Context) -> None:
    if len(context.tabs) >= MAX_TABS:
        raise BadAction(f"There are already {MAX_TABS} tabs; close one with close_tab.")
    context.open_tab()


def _goto(context: Context, url: str) -> None:
    address = url if "://" in url else f"http://{url}"
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.netloc.lower() not in context.sites:
        sites = ", ".join(f"http://{host}/" for host in context.sites)
        raise BadAction(f"{url[:100]!r} cannot be opened. The available sites are: {sites}")
    error = context.tab.navigate(address)
    if error is not None and error != "net::ERR_ABORTED":
        raise BadAction(f"{url[:100]!r} could not be loaded ({error}).")


def _history(context: Context, step: int) -> None:
    tab = context.tab
    history = tab.call("Page.getNavigationHistory")
    index = history["currentIndex"] + step
    entries = history["entries"]
    if not 0 <= index < len(entries) or entries[index]["url"] == "about:blank":
        raise BadAction("There is no earlier page." if step < 0 else "There is no later page.")
    pages = tab.pages
    tab.evaluate("__palestra.leaving=true")
    tab.call("Page.navigateToHistoryEntry", {"entryId": entries[index]["id"]})
    tab.expect_navigation(NAVIGATION_SECONDS, pages)
    try:
        tab.evaluate("__palestra.leaving=false")
    except ProtocolError:  # the new page has its own flag
        return


def _wait(context: Context, seconds: float = 1.0) -> None:
    """Advance the page's clock by `seconds`, in addition to the time that every action takes."""
    context.tab.evaluate(f"__palestra.advance({min(max(seconds, 0.0), 60.0) * 1000})")


_PERFORM: dict[str, Callable[..., None]] = {
    "click": _click,
    "dblclick": lambda context, number: _click(context, number, 2),
    "hover": _hover,
    "focus": _focus,
    "clear": lambda context, number: _fill(context, number, ""),
    "type": _type,
    "fill": _fill,
    "select": lambda context, number, labels: _choose(context.tab, number, labels),
    "select_text": _select_text,
    "drag": _drag,
    "press": _press,
    "press_on": _press_on,
    "keyboard_type": lambda context, text: context.tab.call_all(text_events(text)),
    "scroll": _scroll,
    "scroll_by": lambda context, x, y: context.tab.evaluate(f"__palestra.scroll({x},{y})"),
    "mouse_click": lambda context, x, y: context.tab.call_all(click_events(x, y)),
    "mouse_dblclick": lambda context, x, y: context.tab.call_all(click_events(x, y, 2)),
    "mouse_move": lambda context, x, y: context.tab.call_all([mouse("mouseMoved", x, y)]),
    "mouse_down": lambda context, x, y: context.tab.call_all([mouse("mousePressed", x, y, pressed=True)]),
    "mouse_up": lambda context, x, y: context.tab.call_all([mouse("mouseReleased", x, y)]),
    "mouse_drag": _mouse_drag,
    "wait": _wait,
    "new_tab": _new_tab,
    "tab_focus": _tab_focus,
    "close_tab": lambda context: context.close_tab(),
    "goto": _goto,
    "go_back": lambda context: _history(context, -1),
    "go_forward": lambda context: _history(context, 1),
}

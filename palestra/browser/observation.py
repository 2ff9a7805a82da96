"""Read a page as nodes and format it as WebArena's accessibility tree, as HTML, or as a screenshot with marks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from palestra.browser.context import Context, quoted
from palestra.errors import BadValue

Form = Literal["axtree", "html", "screenshot"]
FORMS: tuple[str, ...] = ("axtree", "html", "screenshot")
MAX_REDIRECTS = 10
MAX_RENEWALS = 3  # maximum updates of the :hover state per observation
MAX_NODES = 3000
NAVIGATION_SECONDS = 2.0  # maximum time to wait for an announced navigation to start
MAX_CHARS = 60_000  # longer observations are cut
ACTIVE_ROLES = frozenset(
    {
        *("button", "link", "textbox", "searchbox", "spinbutton", "checkbox", "radio", "combobox", "listbox", "option"),
        *("slider", "tab", "menuitem", "switch", "treeitem", "clickable", "DisclosureTriangle", "ColorWell"),
    }
)
SHAPE_ROLES = frozenset({"circle", "ellipse", "line", "path", "polygon", "polyline", "rect"})


class Node(NamedTuple):
    """One line of the tree."""

    number: int
    role: str
    name: str
    props: dict[str, Any]
    depth: int

    @property
    def active(self) -> bool:
        return self.role in ACTIVE_ROLES


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Settings that select which parts of a page are observed, and in which form."""

    form: Form = "axtree"
    viewport_only: bool = False  # include only nodes that are visible without scrolling
    coordinates: bool = False  # include the position and size of every node
    boxes: bool = False  # include colored areas without content or role
    marks: bool = True  # draw numbered boxes around the elements in screenshots
    hidden: tuple[str, ...] = ()  # CSS selectors of elements that are not part of the task
    clip: tuple[int, int] | None = None  # width and height of the screenshot, from the upper left corner

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise BadValue(f"`observation` must be one of {', '.join(FORMS)}; got {self.form!r}")

    def script_options(self) -> str:
        options = {"viewport": self.viewport_only, "coordinates": self.coordinates, "boxes": self.boxes}
        return quoted({**options, "hidden": self.hidden, "maxNodes": MAX_NODES})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """A page as it was observed."""

    nodes: tuple[Node, ...]
    url: str
    tabs: tuple[str, ...]  # titles
    current: int
    html: str = ""
    image: bytes = b""
    messages: tuple[str, ...] = ()
    extra: Any = field(default=None)  # value of the script that the environment evaluates together with the observation

    def text(self, form: Form = "axtree") -> str:
        """Return the page as text: the tabs, then the tree or the HTML."""
        body = self.html if form == "html" else tree_text(self.nodes)
        lines = [tab_line(self.tabs, self.current), *self.messages, body]
        text = "\n".join(lines)
        return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}\n(the rest of the page is left out)"


def tab_line(titles: Sequence[str], current: int) -> str:
    return " | ".join(f"Tab {i}{' (current)' if i == current else ''}: {title}" for i, title in enumerate(titles))


def tree_text(nodes: Sequence[Node]) -> str:
    """Return one line per node: `[id] role 'name' property: value`."""
    lines = []
    for number, role, name, props, depth in nodes:
        shown = " ".join(f"{key}: {_shown(value)}" for key, value in props.items())
        lines.append("\t" * depth + f"[{number}] {role} {_quote(name)}" + (f" {shown}" if shown else ""))
    return "\n".join(lines)


def brief_tree(nodes: Sequence[Node]) -> str:
    """Return one line per node below the root, `[id] role name property value`; properties that are false are omitted.

    Names are not in quotation marks, so that a tokenizer that joins words with the space before them gives a name the
    same tokens here and in a sentence.
    """
    lines = []
    for number, role, name, props, depth in nodes[1:]:
        words = [role, name] if name else [role]
        for key, value in props.items():
            if value is not False:
                words += [key] if value is True else [key, _shown(value)]
        lines.append("\t" * max(depth - 1, 0) + f"[{number}] " + " ".join(words))
    return "\n".join(lines)


def _quote(text: str) -> str:
    return f"'{text}'"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return _quote(value) if isinstance(value, str) and " " in value else str(value)


def observe(context: Context, view: View, *, milliseconds: float, extra: str = "null") -> PageState:
    """Advance the page's clock, wait for navigations, requests and new tabs, and return the resulting page.

    `extra` is a JavaScript expression whose value is returned as well.
    """
    html = f"P.html({view.script_options()})" if view.form == "html" else "''"
    context.turns += 1
    renewals = 0
    for _ in range(MAX_REDIRECTS):
        opener = context.tab
        context.adopt_new_tabs()
        tab = context.tab
        if tab is not opener:  # the tab that its page has announced
            opener.retrying(partial(opener.evaluate, "__palestra.opening=false"))
        tab.wait_for_load()
        x, y = tab.mouse if renewals < MAX_RENEWALS else (-1, -1)
        script = (
            f"(async()=>{{const P=__palestra;if(P.staleHover({x},{y}))return 'null';"
            f"await P.pass({context.turns},{milliseconds});const nodes=await P.settled({view.script_options()});"
            f"if(P.staleHover({x},{y}))return 'null';const moves=[P.leaving,P.opening];P.opening=false;"
            f"return JSON.stringify([...moves,nodes,document.title,{html},{extra}])}})()"
        )
        pages = tab.pages
        reply = json.loads(tab.retrying(partial(tab.evaluate, script)))
        if reply is None:
            tab.renew_hover()
            renewals += 1
            continue
        leaving, opening, nodes, title, markup, value = reply
        if opening:
            context.expect_tab(NAVIGATION_SECONDS)
        if leaving:
            tab.expect_navigation(NAVIGATION_SECONDS, pages)
            if tab.pages == pages:  # the page stays; another page would have its own flag
                tab.retrying(partial(tab.evaluate, "__palestra.leaving=false"))
        elif not opening and not tab.busy and not context.has_new_tabs:
            break
    titles = [title if other is tab else _title(other) for other in context.tabs]
    image = _picture(context, view) if view.form == "screenshot" else b""
    messages = tuple(tab.messages)
    tab.messages.clear()
    return PageState(
        nodes=tuple(Node(*node) for node in nodes),
        url=tab.url,
        tabs=tuple(titles),
        current=context.current,
        html=markup,
        image=image,
        messages=messages,
        extra=value,
    )


def _title(tab: Any) -> str:
    return str(tab.retrying(lambda: tab.evaluate("document.title")))


def _picture(context: Context, view: View) -> bytes:
    tab = context.tab
    if view.marks:
        tab.evaluate(f"__palestra.mark({view.script_options()})")
    clip = None if view.clip is None else {"x": 0, "y": 0, "width": view.clip[0], "height": view.clip[1]}
    try:
        return tab.screenshot(clip)
    finally:
        if view.marks:
            tab.evaluate("__palestra.unmark()")

"""Experts for tasks that are solved by clicking elements."""

from __future__ import annotations

import re

from palestra.browser.observation import Node
from palestra.envs.miniwob.experts.look import Expert, Look, click, hover, ordinal, press_button


def click_button(look: Look) -> str:
    return click(look.named(look.quoted()[0], "button"))


def click_test(look: Look) -> str:
    return click(look.all("button")[0])


def click_test_2(look: Look) -> str:
    return click(look.named("ONE", "button"))


def click_sequence(look: Look) -> str:
    return click(look.named("ONE" if look.turn == 0 else "TWO", "button"))


def button_delay(look: Look) -> str:
    if look.turn == 0:
        return click(look.named("ONE", "button"))
    # Every turn advances the page's clock by one second.
    return click(look.named("TWO", "button")) if look.turn >= look.numbers()[0] else "wait [0]"


def click_link(look: Look) -> str:
    return click(look.named(look.quoted()[0], "clickable", "link"))


def click_dialog(look: Look) -> str:
    name = look.quoted()[0]
    return click(look.named("Close" if name == "x" else name, "button"))


def wanted_names(look: Look) -> list[str]:
    """Return A and B for the task "Select A, B and click Submit"."""
    text = re.sub(r"^Select (?:words similar to )?| (?:from the (?:scroll )?list )?and click Submit\.?$", "", look.goal)
    return [] if text == "nothing" else text.split(", ")


def click_checkboxes(look: Look) -> str:
    wanted = wanted_names(look)
    for box in look.all("checkbox", "radio"):
        if bool(box.props["checked"]) != (box.name in wanted) and not (box.role == "radio" and box.props["checked"]):
            return click(box)
    return press_button(look)


def choose_list(look: Look) -> str:
    wanted = wanted_names(look)
    chosen = [node.name for node in look.all("option") if node.props.get("selected")]
    if sorted(chosen) == sorted(wanted):
        return press_button(look)
    select = look.all("combobox", "listbox")[0]
    return f"select_option('{select.number}', {wanted!r})"


def click_tab(look: Look) -> str:
    name = re.search(r"Tab #\d+", look.goal)
    return click(look.named(name[0] if name else "", "link"))


def click_tab_2(look: Look) -> str:
    link = look.named(look.quoted()[0], "clickable", "link")
    if link is not None:
        return click(link)
    tabs = look.all("tab")
    closed = [tab for tab in tabs if tab.props.get("selected") is False and not _tab_used(look, tab)]
    if not closed:
        return click(None)
    inner = [node for node in look.after(closed[0]) if node.role == "link" and node.depth > closed[0].depth]
    return click(inner[0] if inner else closed[0])


def _tab_used(look: Look, tab: Node) -> bool:
    rest = look.after(tab)
    return look.used(tab) or (bool(rest) and rest[0].depth > tab.depth and look.used(rest[0]))


def click_collapsible(look: Look) -> str:
    section = look.all("tab")[0]
    return click(section) if section.props.get("expanded") is False else press_button(look)


def click_color(look: Look) -> str:
    match = re.search(r"the (\w+) colored", look.goal)
    color = match[1] if match else ""
    return click(next((node for node in look.nodes if node.props.get("color") == color), None))


def click_shades(look: Look) -> str:
    match = re.search(r"shades of (\w+)", look.goal)
    place = {"red": 1, "green": 3, "blue": 5}[match[1] if match else "red"]
    for node in look.nodes:
        color = str(node.props.get("color", ""))
        if node.role != "clickable" or look.used(node):
            continue
        parts = [_component(color, at) for at in (1, 3, 5)]
        if parts[place // 2] == max(parts) and parts.count(max(parts)) == 1:
            return click(node)
    return press_button(look)


_NAMED = {"red": "#ff0000", "lime": "#00ff00", "green": "#008000", "blue": "#0000ff", "navy": "#000080"}


def _component(color: str, at: int) -> int:
    return int(_NAMED.get(color, color)[at : at + 2] or "0", 16)


def click_widget(look: Look) -> str:
    kind = look.quoted()[0]
    roles = {"text": "textbox", "textarea": "textbox", "checkbox": "checkbox", "radio": "radio", "button": "button"}
    candidates = [node for node in look.all(roles[kind]) if not look.used(node)]
    if kind == "textarea":
        candidates = [node for node in candidates if node.props.get("multiline")]
    elif kind == "text":
        candidates = [node for node in candidates if not node.props.get("multiline")]
    return click(candidates[0] if candidates else None)


def click_menu(look: Look) -> str:
    path = look.goal.removeprefix("Select ").split(">")
    for depth in range(len(path), 0, -1):
        item = look.named(path[depth - 1], "menuitem")
        if item is not None:
            return click(item) if depth == len(path) else hover(item)
    return click(None)


def click_menu_2(look: Look) -> str:
    if look.turn == 0:
        return click(look.named("Menu", "button"))
    name = look.quoted()[-1]
    item = look.named(name, "menuitem", "clickable", "link") or look.containing(name, "menuitem", "clickable")
    if item is not None:
        return click(item)
    parents = [node for node in look.all("menuitem") if not look.used(node)]
    return hover(parents[0] if parents else None)


def navigate_tree(look: Look) -> str:
    name = look.quoted()[0]
    target = look.named(name, "clickable", "listitem")
    if target is not None:
        return click(target)
    folders = [node for node in look.all("clickable") if node.name and not look.used(node)]
    return click(folders[0] if folders else None)


def click_pie(look: Look) -> str:
    if look.turn == 0:
        return click(look.named("+", "text"))
    return click(look.named(look.quoted()[0], "text"))


def social_media(look: Look) -> str:
    button = look.quoted()[0]
    user = re.search(r"@\w+", look.goal)
    post = look.named(user[0] if user else "", "StaticText")
    if post is None:
        return click(None)
    rest = look.after(post)
    direct = _icon(rest, button)
    if direct is not None:
        return click(direct)
    item = next((node for node in rest if node.role == "listitem" and node.name.startswith(button)), None)
    return click(item or _icon(rest, "more"))


def _icon(nodes: list[Node], name: str) -> Node | None:
    """Return the icon `name` of the first post in `nodes`; the next user name starts another post."""
    for node in nodes:
        if node.name.startswith("@"):
            return None
        if name.lower() in str(node.props.get("class", "")).lower().split():
            return node
    return None


def social_media_all(look: Look) -> str:
    button = look.quoted()[0]
    user = re.search(r"@\w+", look.goal)
    count = re.search(r"on (\d+) posts?", look.goal)
    posts = [node for node in look.all("StaticText") if user and node.name == user[0]]
    icons = [icon for post in posts if (icon := _icon(look.after(post), button)) is not None]
    if count is not None:
        icons = icons[: int(count[1])]
    for icon in icons:
        if not look.used(icon):
            return click(icon)
    return press_button(look)


def phone_book(look: Look) -> str:
    match = re.search(r"Find (\S+) in .* click on their ([\w ]+)\.", look.goal)
    name, what = (match[1], match[2]) if match else ("", "")
    if look.named(name, "heading") is None:
        return click(look.named(">", "link"))
    label = {"phone number": "Phone:", "email": "Email:", "address": "Address:"}[what]
    text = look.named(label, "StaticText")
    return click(None if text is None else next(node for node in look.after(text) if node.role == "link"))


def search_engine(look: Look) -> str:
    query = look.quoted()[0]
    field = look.fields()[0]
    if field.props.get("value") != query:
        return f"fill [{field.number}] [{query}]"
    results = [node for node in look.all("link") if not re.fullmatch(r"\d+|[<>]", node.name) and "." not in node.name]
    if not results:
        return press_button(look, "Search")
    place, page = (ordinal(look.goal) - 1) % 3, (ordinal(look.goal) - 1) // 3
    turned = sum(1 for command in look.commands if command.name == "click") - 1
    return click(look.named(">", "link")) if turned < page else click(results[place])


def tic_tac_toe(look: Look) -> str:
    cells = _cells(look)
    ours, theirs = {i for i in cells if cells[i][1] == "X"}, {i for i in cells if cells[i][1] == "O"}
    free = [i for i in cells if not cells[i][1]]
    for owned in (ours, theirs):
        for line in _LINES:
            left = [i for i in line if i not in owned]
            if len(left) == 1 and left[0] in free:
                return click(cells[left[0]][0])
    return click(cells[next(i for i in (4, 0, 2, 6, 8, 1, 3, 5, 7) if i in free)][0])


_LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def _cells(look: Look) -> dict[int, tuple[Node, str]]:
    cells: dict[int, tuple[Node, str]] = {}
    for node in look.nodes:
        if node.role not in ("clickable", "img", "box"):
            continue
        match = re.search(r"ttt-(\d)", str(node.props.get("class", "")))
        if match:
            words = str(node.props["class"])
            cells[int(match[1])] = (node, "X" if "mark-x" in words else "O" if "mark-o" in words else "")
    return cells


EXPERTS: dict[str, Expert] = {
    "button-delay": button_delay,
    "choose-list": choose_list,
    "click-button": click_button,
    "click-button-sequence": click_sequence,
    "click-checkboxes": click_checkboxes,
    "click-checkboxes-large": click_checkboxes,
    "click-checkboxes-transfer": click_checkboxes,
    "click-collapsible": click_collapsible,
    "click-collapsible-2": click_tab_2,
    "click-collapsible-2-nodelay": click_tab_2,
    "click-collapsible-nodelay": click_collapsible,
    "click-color": click_color,
    "click-dialog": click_dialog,
    "click-dialog-2": click_dialog,
    "click-link": click_link,
    "click-menu": click_menu,
    "click-menu-2": click_menu_2,
    "click-option": click_checkboxes,
    "click-pie": click_pie,
    "click-pie-nodelay": click_pie,
    "click-scroll-list": choose_list,
    "click-shades": click_shades,
    "click-tab": click_tab,
    "click-tab-2": click_tab_2,
    "click-tab-2-easy": click_tab_2,
    "click-tab-2-hard": click_tab_2,
    "click-tab-2-medium": click_tab_2,
    "click-test": click_test,
    "click-test-2": click_test_2,
    "click-test-transfer": click_test_2,
    "click-widget": click_widget,
    "navigate-tree": navigate_tree,
    "phone-book": phone_book,
    "search-engine": search_engine,
    "social-media": social_media,
    "social-media-all": social_media_all,
    "social-media-some": social_media_all,
    "tic-tac-toe": tic_tac_toe,
    "unicode-test": click_button,
}

"""Experts for tasks that are solved by typing text."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise

from palestra.browser.observation import Node
from palestra.envs.miniwob.experts.look import Expert, Look, click, fill, fill_fields, ordinal, press_button


def enter_text(look: Look) -> str:
    return fill_fields(look, look.quoted()[:1])


def enter_text_2(look: Look) -> str:
    text = look.quoted()[0]
    return fill_fields(look, [text.upper() if "upper case" in look.goal else text.lower()])


def enter_password(look: Look) -> str:
    return fill_fields(look, look.quoted()[:1] * 2)


def login_user(look: Look) -> str:
    return fill_fields(look, look.quoted()[:2], "Login")


def login_user_popup(look: Look) -> str:
    cancel = look.named("Cancel", "button") or look.named("Cancel", "clickable")
    if cancel is not None:
        return click(cancel)  # a popup covers the form
    return fill_fields(look, look.quoted()[:2], "OK" if look.named("OK", "button") else "Login")


def enter_date(look: Look) -> str:
    match = re.search(r"(\d\d)/(\d\d)/(\d{4})", look.goal)
    month, day, year = match.groups() if match else ("01", "01", "2000")
    return fill_fields(look, [f"{year}-{month}-{day}"])


def enter_time(look: Look) -> str:
    match = re.search(r"\d+:\d\d [AP]M", look.goal)
    time = datetime.strptime(match[0] if match else "1:00 AM", "%I:%M %p")
    return fill_fields(look, [time.strftime("%H:%M")])


def focus_text(look: Look) -> str:
    return click(look.fields()[ordinal(look.goal) - 1])


def find_word(look: Look) -> str:
    words = look.all("paragraph")[0].name.split()
    return fill_fields(look, [words[ordinal(look.goal) - 1].strip(".,!?")])


def copy_paste(look: Look) -> str:
    areas = [node for node in look.fields() if node.props.get("multiline")]
    field = next(node for node in look.fields() if not node.props.get("multiline"))
    text = str(areas[ordinal(look.goal) - 1].props.get("value", ""))
    if str(field.props.get("value", "")) != text:
        return fill(field, text)
    return press_button(look)


def scroll_text(look: Look) -> str:
    area, field = look.fields()[:2]
    words = str(area.props.get("value", "")).split()
    return fill_fields(look, [words[-1].strip(".,!?")], fields=[field])


def scroll_text_2(look: Look) -> str:
    area = look.fields()[0]
    if look.turn == 0:
        return click(area)
    if look.turn == 1:
        return "press [Control+End]" if "bottom" in look.goal else "press [Control+Home]"
    return press_button(look)


def sign_agreement(look: Look) -> str:
    names = look.quoted()
    if not look.goal.startswith("Scroll"):
        return press_button(look, "Cancel" if "cancel" in look.goal.lower() else "Agree")
    if look.turn == 0:
        return click(look.fields()[0])
    if look.turn == 1:
        return "press [Control+End]"
    return fill_fields(look, names[:1], names[-1], fields=look.fields()[1:])


def simple_arithmetic(look: Look) -> str:
    match = re.search(r"(-?\d+) ([-+x]) (-?\d+) =", " ".join(look.texts()))
    if match is None:
        return "wait"
    a, b = int(match[1]), int(match[3])
    return fill_fields(look, [str({"+": a + b, "-": a - b, "x": a * b}[match[2]])])


def simple_algebra(look: Look) -> str:
    text = look.texts()[0]
    match = re.fullmatch(r"(x|-?\d+) ([-+]) (x|-?\d+) = (-?\d+)", text)
    if match is None:
        return "wait"
    left, sign, right, total = match.groups()
    if left == "x":
        value = int(total) - int(right) if sign == "+" else int(total) + int(right)
    else:
        value = int(total) - int(left) if sign == "+" else int(left) - int(total)
    return fill_fields(look, [str(value)])


def read_table(look: Look) -> str:
    match = re.search(r"value of (.+) into", look.goal)
    return fill_fields(look, [_table(look)[match[1] if match else ""]])


def _table(look: Look) -> dict[str, str]:
    cells = [node.name for node in look.all("gridcell")]
    return dict(zip(cells[::2], cells[1::2], strict=False))


def read_table_2(look: Look) -> str:
    labels = [node.name.rstrip(":") for node in look.all("LabelText")]
    return fill_fields(look, [_table(look)[label] for label in labels])


def text_transform(look: Look) -> str:
    return fill_fields(look, ["".join(look.texts())])


def multi_search(look: Look) -> str:
    match = re.search(r"Search for (.+) movies directed by (.+) from year (\d+)", look.goal)
    genre, director, year = match.groups() if match else ("", "", "")
    fields = look.all("textbox")
    labels = [field.name for field in fields if field.name]
    if len(labels) < len(fields):
        roles = ("StaticText", "LabelText", "columnheader", "gridcell")
        labels = [node.name for node in look.all(*roles) if re.search("genre|year|direct", node.name, re.I)]
    for field, label in zip(fields, labels, strict=False):
        text = year if "year" in label.lower() else director if "direct" in label.lower() else genre
        if field.props.get("value") != text:
            return fill(field, text)
    buttons = [node for node in look.all("button", "clickable") if node.name in ("Search", "Submit")]
    return click(buttons[-1] if buttons else look.all("button", "clickable")[-1])


def guess_number(look: Look) -> str:
    guesses = [int(command.args[1]) for command in look.commands if command.name == "fill"]
    if look.commands and look.commands[-1].name == "fill":
        return press_button(look)
    low, high = 0, 9
    for guess, following in pairwise(guesses):  # later guesses show the feedback on earlier ones
        low, high = (guess + 1, high) if following > guess else (low, guess - 1)
    text = " ".join(look.texts())
    if guesses and "higher" in text:
        low = guesses[-1] + 1
    elif guesses and "lower" in text:
        high = guesses[-1] - 1
    return fill(look.fields()[0], str((low + high) // 2))


def use_autocomplete(look: Look) -> str:
    start, *end = look.quoted()
    field = look.fields()[0]
    items = [node for node in look.all("menuitem", "option", "clickable", "listitem") if node.name.startswith(start)]
    value = str(field.props.get("value", ""))
    if len(value) > len(start) and value.startswith(start) and look.commands[-1].name == "click":
        return press_button(look)
    for item in items:
        if not end or item.name.endswith(end[0]):
            return click(item)
    return f"type [{field.number}] [{start}] [0]" if not value else "wait"


def use_spinner(look: Look) -> str:
    field = look.fields()[0]
    if not field.props.get("focused"):
        return press_button(look) if look.turn else click(field)
    wanted, value = look.numbers()[0], int(field.props.get("value", 0))
    return press_button(look) if value == wanted else f"press [{'ArrowUp' if value < wanted else 'ArrowDown'}]"


def order_food(look: Look) -> str:
    plus = [(node, _dish(look, node)) for node in look.nodes if node.name == "+"]
    match = re.fullmatch(r"Order (\d+) items? that (?:are|is|contains?) (.+)", look.goal.rstrip("."))
    clicked = sum(1 for command in look.commands if command.name == "click")
    if match is not None:
        kind = match[2].strip()
        wanted = [node for node, (_, kinds) in plus if kind in kinds][: int(match[1])]
        wanted = (wanted * int(match[1]))[: int(match[1])]
    else:
        names = look.goal.partition(": ")[2].split(", ")
        wanted = [node for name in names for node, (dish, _) in plus if dish == name]
    return click(wanted[clicked]) if clicked < len(wanted) else press_button(look, "Order!")


def _dish(look: Look, plus: Node) -> tuple[str, list[str]]:
    """Return the name and the labels of the dish that a plus button belongs to."""
    before = list(look.nodes[: look.nodes.index(plus)])
    name = next((node.name for node in reversed(before) if node.role == "StaticText" and not node.name.isdigit()), "")
    kinds: list[str] = []
    for node in reversed(before):
        if node.role == "StaticText" and node.name == name:
            break
        if node.role == "img":
            kinds.append(node.name)
    return name, kinds


def generate_number(look: Look) -> str:
    if look.turn == 0:
        return press_button(look, "Generate")
    text = next((text for text in look.texts() if re.fullmatch(r"-?\d+", text)), None)
    if text is None:
        return press_button(look, "Generate")
    value = int(text)
    goal, numbers = look.goal, look.numbers()
    fits = (
        (value % 2 == 1 if "odd" in goal else value % 2 == 0)
        if "odd" in goal or "even" in goal
        else (value > numbers[0] if "greater" in goal else value < numbers[0])
    )
    return press_button(look) if fits else press_button(look, "Generate")


EXPERTS: dict[str, Expert] = {
    "copy-paste": copy_paste,
    "copy-paste-2": copy_paste,
    "enter-date": enter_date,
    "enter-password": enter_password,
    "enter-text": enter_text,
    "enter-text-2": enter_text_2,
    "enter-text-dynamic": enter_text,
    "enter-time": enter_time,
    "find-word": find_word,
    "focus-text": focus_text,
    "focus-text-2": focus_text,
    "generate-number": generate_number,
    "guess-number": guess_number,
    "login-user": login_user,
    "login-user-popup": login_user_popup,
    "multi-layouts": multi_search,
    "multi-orderings": multi_search,
    "order-food": order_food,
    "read-table": read_table,
    "read-table-2": read_table_2,
    "scroll-text": scroll_text,
    "scroll-text-2": scroll_text_2,
    "sign-agreement": sign_agreement,
    "simple-algebra": simple_algebra,
    "simple-arithmetic": simple_arithmetic,
    "text-transform": text_transform,
    "use-autocomplete": use_autocomplete,
    "use-autocomplete-nodelay": use_autocomplete,
    "use-spinner": use_spinner,
}

"""Experts for tasks with shapes, positions and dragging."""

from __future__ import annotations

import re
from math import hypot

from palestra.browser.observation import Node
from palestra.envs.miniwob.experts.look import Expert, Look, click, fill_fields, ordinal, press_button

SHAPES = frozenset({"circle", "rect", "polygon", "ellipse", "text"})


def center(node: Node) -> tuple[float, float]:
    x, y = node.props["center"]
    return float(x), float(y)


def at(x: float, y: float) -> str:
    return f"mouse_click [{round(x)}] [{round(y)}]"


def drag_to(node: Node, x: float, y: float) -> str:
    start_x, start_y = center(node)
    return f"mouse_drag [{round(start_x)}] [{round(start_y)}] [{round(x)}] [{round(y)}]"


def shapes(look: Look) -> list[Node]:
    return [node for node in look.nodes if node.role in SHAPES and node.props.get("fill")]


def matches(node: Node, words: str) -> bool:
    """Return whether a shape fits a description such as "large red circles"."""
    size = max(node.props["size"])
    kind = {
        "circle": "circle",
        "rect": "rectangle",
        "polygon": "triangle",
        "text": "digit" if node.name.isdigit() else "letter",
    }
    for word in words.split():
        if len(word) == 1 and word != "a":
            if node.role != "text" or node.name != word:
                return False
            continue
        word = word.lower().rstrip("s")
        if word in ("large", "small"):
            if (size > 14) != (word == "large"):
                return False
        elif word in ("circle", "rectangle", "triangle", "digit", "letter"):
            if kind.get(node.role) != word:
                return False
        elif word in ("item", "shape", "thing", "a", "an", "the"):
            continue
        elif node.props.get("fill") != {"aqua": "cyan", "magenta": "magenta"}.get(word, word):
            return False
    return True


def click_shape(look: Look) -> str:
    words = re.sub(r"^Click on (?:a|an|the) ", "", look.goal.rstrip("."))
    return click(next((node for node in shapes(look) if matches(node, words)), None))


def count_shape(look: Look) -> str:
    match = re.search(r"How many (.+) are there", look.goal)
    count = sum(1 for node in shapes(look) if matches(node, match[1] if match else ""))
    return click(look.named(str(count), "button"))


def identify_shape(look: Look) -> str:
    node = shapes(look)[0]
    name = {"circle": "Circle", "rect": "Rectangle", "polygon": "Triangle"}.get(node.role)
    return click(look.named(name or ("Number" if node.name.isdigit() else "Letter"), "button"))


def ascending_numbers(look: Look) -> str:
    if look.turn == 0:
        return click(look.named("1", "text"))
    return click(look.all("rect")[0])  # squares that hide the numbers, in ascending order


def circle_center(look: Look) -> str:
    return at(*center(look.all("circle")[0])) if look.turn == 0 else press_button(look)


def find_midpoint(look: Look) -> str:
    if look.turn > 0:
        return press_button(look)
    (a, b), (c, d) = (center(node) for node in look.all("circle")[:2])
    return at((a + c) / 2, (b + d) / 2)


def right_angle(look: Look) -> str:
    if look.turn > 0:
        return press_button(look)
    circles = look.all("circle")
    corner = next(node for node in circles if node.props["fill"] == "blue")
    other = next(node for node in circles if node.props["fill"] != "blue")
    (x, y), (a, b) = center(corner), center(other)
    dx, dy = a - x, b - y
    for scale in (0.6, -0.6, 0.4, -0.4, 0.25, -0.25):
        to_x, to_y = x - dy * scale, y + dx * scale
        if 5 < to_x < 150 and 55 < to_y < 175:
            return at(to_x, to_y)
    return at(x - dy * 0.2, y + dx * 0.2)


def bisect_angle(look: Look) -> str:
    if look.turn > 0:
        return press_button(look)
    circles = look.all("circle")
    corner = next(node for node in circles if node.props["fill"] == "blue")
    x, y = center(corner)
    dx = dy = 0.0
    for node in circles:
        if node is not corner:
            a, b = center(node)
            length = hypot(a - x, b - y)
            dx, dy = dx + (a - x) / length, dy + (b - y) / length
    length = hypot(dx, dy) or 1.0
    for reach in (60.0, 45.0, 30.0, 20.0):
        to_x, to_y = x + dx / length * reach, y + dy / length * reach
        if 3 < to_x < 155 and 53 < to_y < 178:
            break
    return at(to_x, to_y)


def grid_coordinate(look: Look) -> str:
    match = re.search(r"\((-?\d+),\s*(-?\d+)\)", look.goal)
    x, y = (int(match[1]), int(match[2])) if match else (0, 0)
    points = sorted(
        look.all("circle"), key=lambda node: hypot(center(node)[0] - 79 - 30 * x, center(node)[1] - 129 + 30 * y)
    )
    return click(points[0])


def drag_direction(look: Look) -> str:
    node = shapes(look)[0]
    if look.turn > 0:
        return press_button(look)
    word = re.search(r"\b(up|down|left|right)\b", look.goal)
    dx, dy = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}[word[1] if word else "up"]
    x, y = center(node)
    return drag_to(node, x + 25 * dx, y + 25 * dy)


def drag_shapes(look: Look) -> str:
    box = next(node for node in look.all("rect") if not node.props.get("fill"))
    words = re.search(r"all (.+) into", look.goal)
    return _drag_into(look, [(box, words[1] if words else "")])


def drag_shapes_2(look: Look) -> str:
    boxes = [node for node in look.all("rect") if not node.props.get("fill")]
    left, right = sorted(boxes, key=lambda node: center(node)[0])
    words = re.search(r"all (.+?) into the (left|right)", look.goal)
    kind, side = (words[1], words[2]) if words else ("", "left")
    first, second = (left, right) if side == "left" else (right, left)
    return _drag_into(look, [(first, kind), (second, "")])


def _drag_into(look: Look, targets: list[tuple[Node, str]]) -> str:
    for node in shapes(look):
        if node.role == "text":
            continue
        box = next((box for box, words in targets if matches(node, words)), None)
        if box is not None and not _inside(node, box):
            x, y = center(box)
            moved = sum(1 for other in shapes(look) if _inside(other, box))
            width = box.props["size"][0]
            return drag_to(node, x - width / 2 + 12 + 18 * (moved % 3), y - 8 + 17 * (moved // 3 % 2))
    return press_button(look)


def _inside(node: Node, box: Node) -> bool:
    (x, y), (a, b) = center(node), center(box)
    width, height = box.props["size"]
    return bool(abs(x - a) < width / 2 and abs(y - b) < height / 2)


def odd_or_even(look: Look) -> str:
    numbers = [node for node in look.all("StaticText") if re.fullmatch(r"-?\d+", node.name)]
    for node in numbers:
        place = look.nodes.index(node)
        button = look.nodes[place - 1] if int(node.name) % 2 else look.nodes[place + 1]
        if not look.used(button):
            return click(button)
    return press_button(look)


def find_greatest(look: Look) -> str:
    if look.turn > 0:
        return press_button(look)
    cards = [node for node in look.all("clickable") if re.fullmatch(r"-?\d+", node.name)]
    return click(max(cards, key=lambda node: int(node.name)))


def visual_addition(look: Look) -> str:
    return fill_fields(look, [str(len(look.all("box")))])


def buy_ticket(look: Look) -> str:
    best: tuple[float, Node] | None = None
    duration = 0
    for node in look.nodes:
        match = re.fullmatch(r"(\d+)h (\d+)m", node.name)
        if match:
            duration = 60 * int(match[1]) + int(match[2])
        price = re.fullmatch(r"Book for \$(\d+)", node.name)
        if price and node.role == "button":
            value = float(duration if "duration" in look.goal else price[1])
            if "longest" in look.goal or "expensive" in look.goal:
                value = -value
            if best is None or value < best[0]:
                best = value, node
    return click(best[1] if best else None)


def stock_market(look: Look) -> str:
    limit = re.search(r"\$(\d+\.\d+)", look.goal)
    price = next((text for text in look.texts() if text.startswith("$")), "$0")
    return press_button(look, "Buy") if limit and float(price[1:]) < float(limit[1]) else "wait [0]"


def highlight_text(look: Look) -> str:
    if look.turn > 0:
        return press_button(look)
    texts = look.all("paragraph") or look.all("StaticText")
    node = texts[ordinal(look.goal) - 1]
    return f"select_text [{node.number}] [0] [{len(node.name) + 5}]"


def form_sequence_2(look: Look) -> str:
    places = [int(number) for number in re.findall(r"(\d+)(?:st|nd|rd|th)", look.goal)]
    radio = look.all("radio")[places[0] - 1]
    field = look.all("textbox")[places[1] - 1]
    text = look.quoted()[0]
    if not radio.props["checked"]:
        return click(radio)
    if field.props.get("value") != text:
        return f"fill [{field.number}] [{text}]"
    return press_button(look)


def drag_items(look: Look) -> str:
    match = re.search(r"Drag (\w+) (up|down) by (\w+) position", look.goal)
    items = look.all("listitem")
    if match is None:
        match = re.search(r"Drag (\w+) to the (\w+) position", look.goal)
        place = {"1st": 0, "2nd": 1, "3rd": 2, "4th": 3, "5th": 4}.get(match[2] if match else "", 0)
    else:
        here = next(i for i, node in enumerate(items) if node.name == match[1])
        count = {"one": 1, "two": 2, "three": 3}.get(match[3], 1)
        place = here - count if match[2] == "up" else here + count
    node = look.named(match[1] if match else "", "listitem")
    return "wait" if node is None else f"drag [{node.number}] [{items[place].number}]"


EXPERTS: dict[str, Expert] = {
    "ascending-numbers": ascending_numbers,
    "bisect-angle": bisect_angle,
    "buy-ticket": buy_ticket,
    "circle-center": circle_center,
    "click-shape": click_shape,
    "count-shape": count_shape,
    "drag-circle": drag_direction,
    "drag-items": drag_items,
    "drag-shapes": drag_shapes,
    "drag-shapes-2": drag_shapes_2,
    "drag-single-shape": drag_direction,
    "find-greatest": find_greatest,
    "find-midpoint": find_midpoint,
    "form-sequence-2": form_sequence_2,
    "grid-coordinate": grid_coordinate,
    "highlight-text": highlight_text,
    "highlight-text-2": highlight_text,
    "identify-shape": identify_shape,
    "odd-or-even": odd_or_even,
    "right-angle": right_angle,
    "stock-market": stock_market,
    "visual-addition": visual_addition,
}

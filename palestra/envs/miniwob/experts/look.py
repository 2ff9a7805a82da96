"""The expert's input: the task's text, the observed page, and the actions taken so far."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from palestra.browser.actions import Command
from palestra.browser.observation import Node

FIELDS = frozenset({"textbox", "searchbox", "spinbutton"})


@dataclass(frozen=True, slots=True)
class Look:
    goal: str
    nodes: tuple[Node, ...]
    commands: tuple[Command, ...]

    @property
    def turn(self) -> int:
        return len(self.commands)

    def quoted(self) -> list[str]:
        """Return the texts in quotation marks in the task."""
        return re.findall(r'"([^"]*)"', self.goal)

    def numbers(self) -> list[int]:
        return [int(text) for text in re.findall(r"-?\d+", self.goal)]

    def all(self, *roles: str) -> list[Node]:
        return [node for node in self.nodes if node.role in roles]

    def named(self, name: str, *roles: str) -> Node | None:
        """Return the first node with this name and, if roles are given, one of these roles; None if there is none."""
        return next((node for node in self.nodes if node.name == name and (not roles or node.role in roles)), None)

    def containing(self, part: str, *roles: str) -> Node | None:
        return next((node for node in self.nodes if part in node.name and (not roles or node.role in roles)), None)

    def of_class(self, name: str) -> list[Node]:
        """Return the nodes with this CSS class."""
        return [node for node in self.nodes if name in str(node.props.get("class", "")).split()]

    def fields(self) -> list[Node]:
        return [node for node in self.nodes if node.role in FIELDS]

    def texts(self) -> list[str]:
        return [node.name for node in self.nodes if node.role == "StaticText"]

    def after(self, node: Node) -> list[Node]:
        return list(self.nodes[self.nodes.index(node) + 1 :])

    def used(self, node: Node) -> bool:
        """Return whether this node was the first argument of an earlier action."""
        return any(command.args[:1] == (node.number,) for command in self.commands)


Expert = Callable[[Look], str]


def click(node: Node | None) -> str:
    """Return the action that clicks a node, or "wait" if the page does not contain the node yet."""
    return "wait" if node is None else f"click [{node.number}]"


def hover(node: Node | None) -> str:
    return "wait" if node is None else f"hover [{node.number}]"


def fill(node: Node | None, text: str) -> str:
    return "wait" if node is None else f"fill [{node.number}] [{text}]"


def fill_fields(look: Look, texts: list[str], button: str = "Submit", fields: list[Node] | None = None) -> str:
    """Return the action that fills the first field without its text or, if all are filled, presses a button."""
    for field, text in zip(look.fields() if fields is None else fields, texts, strict=False):
        if str(field.props.get("value", "")) != text:
            return fill(field, text)
    return press_button(look, button)


def press_button(look: Look, name: str = "Submit") -> str:
    lower = name.lower()
    nodes = [node for node in look.nodes if node.role in ("button", "clickable", "link") and node.name.lower() == lower]
    return click(nodes[-1] if nodes else None)


def ordinal(text: str) -> int:
    """Return the first ordinal number in a text ("1st", "2nd", ...), or 1 if there is none."""
    match = re.search(r"(\d+)(?:st|nd|rd|th)", text)
    return int(match[1]) if match else 1

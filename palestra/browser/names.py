"""Actions that identify an element by its name, `click Submit` or `fill textbox [text]`, instead of its number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palestra.browser.actions import ARGUMENTS, SYNONYMS, BadAction, find_action
from palestra.browser.observation import Node
from palestra.parsing import clip

# Names of actions whose first argument is the only element.
_ACTIONS = {name for name, kinds in ARGUMENTS.items() if kinds[:1] == ("id",) and kinds.count("id") == 1}
_NAMED = re.compile(r"([a-z_]+) +([^\s\[\]()](?:[^\[\]()\n]*[^\s\[\]()])?)((?: *\[.*\])?)", re.S)
_NUMBERED = re.compile(r"([a-z_]+) \[(\d+)\]((?: \[.*\])?)", re.S)


def element_named(nodes: Sequence[Node], name: str) -> Node | None:
    """Return the first element with this name, or the first unnamed one with this role; None if there is none.

    Elements that can be used, such as buttons, come before texts.
    """
    found = [node for node in nodes if (node.name or node.role) == name]
    return next((node for node in found if node.active), found[0] if found else None)


def is_named_action(reply: str) -> bool:
    """Return whether a reply's action gives its element by name."""
    return _match(reply) is not None


def name_to_number(reply: str, nodes: Sequence[Node]) -> str:
    """Return a reply's action with the element's number instead of its name; other replies are returned unchanged.

    Raises BadAction if the page has no such element.
    """
    match = _match(reply)
    if match is None:
        return reply
    node = element_named(nodes, match[2])
    if node is None:
        raise BadAction(f"The page has no element named {clip(match[2], 80)!r}.")
    return f"{match[1]} [{node.number}]{match[3]}"


def _match(reply: str) -> re.Match[str] | None:
    match = _NAMED.fullmatch(find_action(reply))
    return match if match is not None and SYNONYMS.get(match[1], match[1]) in _ACTIONS else None


def number_to_name(action: str, nodes: Sequence[Node]) -> str:
    """Return an action with the element's name instead of its number, if the name identifies the element."""
    match = _NUMBERED.fullmatch(action)
    if match is None or match[1] not in _ACTIONS:
        return action
    node = next((node for node in nodes if node.number == int(match[2])), None)
    named = "" if node is None else f"{match[1]} {node.name or node.role}{match[3]}"
    again = _NAMED.fullmatch(named)
    if again is None or node is None or element_named(nodes, again[2]) is not node:
        return action
    return named

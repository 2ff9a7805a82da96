"""Task templates: functions that draw a task from the content of a data seed, with the moves of an expert.

@template("encyclopedia", level=1)
def population(draw: Draw) -> Task:
    city = draw.choice(library(draw.data_seed).cities)
    return Task(
        intent=f"What is the population of {city.title}?",
        answer=(str(city.population),),
        expert=(Enter("Search", city.title), Click(city.title), Stop(str(city.population))),
        wrong=(Stop("1000"),),
    )
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeVar

from palestra.browser.observation import Node
from palestra.envs.web.suite.app import Change

T = TypeVar("T")
LEVELS = (1, 2, 3)
NOT_POSSIBLE = "N/A"  # the answer to an impossible task
_FIELDS = frozenset({"textbox", "searchbox", "spinbutton"})


class Click(NamedTuple):
    """Click the link or button with this name."""

    name: str

    def action(self, nodes: Sequence[Node]) -> str | None:
        node = _find(nodes, self.name, lambda node: node.role in ("link", "button", "checkbox", "radio"))
        return None if node is None else f"click [{node}]"


class ClickAfter(NamedTuple):
    """Click the first link or button after a text, or the first one with this name."""

    text: str
    name: str = ""

    def action(self, nodes: Sequence[Node]) -> str | None:
        place = next((place for place, node in enumerate(nodes) if node.name == self.text), len(nodes))
        after = (node for node in nodes[place + 1 :] if node.role in ("link", "button"))
        node = next((node.number for node in after if self.name in ("", node.name)), None)
        return None if node is None else f"click [{node}]"


class Enter(NamedTuple):
    """Write into the field with this label and press Enter."""

    label: str
    text: str

    def action(self, nodes: Sequence[Node]) -> str | None:
        node = _find_field(nodes, self.label, lambda node: node.role in _FIELDS)
        return None if node is None else f"type [{node}] [{self.text}] [1]"


class Fill(NamedTuple):
    """Replace the content of the field with this label."""

    label: str
    text: str

    def action(self, nodes: Sequence[Node]) -> str | None:
        node = _find_field(nodes, self.label, lambda node: node.role in _FIELDS)
        return None if node is None else f"fill('{node}', {self.text!r})"


class FillNumber(NamedTuple):
    """Replace the content of a field for numbers that has no label, counted from 0."""

    place: int
    text: str

    def action(self, nodes: Sequence[Node]) -> str | None:
        numbers = [node.number for node in nodes if node.role == "spinbutton"]
        return f"fill('{numbers[self.place]}', {self.text!r})" if self.place < len(numbers) else None


class Write(NamedTuple):
    """Replace the content of the first multi-line field."""

    text: str

    def action(self, nodes: Sequence[Node]) -> str | None:
        node = next((node.number for node in nodes if node.props.get("multiline")), None)
        return None if node is None else f"fill('{node}', {self.text!r})"


class Choose(NamedTuple):
    """Choose an option of the list with this label."""

    label: str
    option: str

    def action(self, nodes: Sequence[Node]) -> str | None:
        node = _find_field(nodes, self.label, lambda node: node.role in ("combobox", "listbox"))
        return None if node is None else f"select [{node}] [{self.option}]"


class Goto(NamedTuple):
    url: str

    def action(self, nodes: Sequence[Node]) -> str | None:  # noqa: ARG002  # the same signature as the other moves
        return f"goto [{self.url}]"


class Stop(NamedTuple):
    answer: str = ""

    def action(self, nodes: Sequence[Node]) -> str | None:  # noqa: ARG002
        return f"stop [{self.answer}]"


Move = Click | ClickAfter | Enter | Fill | FillNumber | Write | Choose | Goto | Stop


def _find(nodes: Sequence[Node], name: str, accepts: Callable[[Node], bool]) -> int | None:
    return next((node.number for node in nodes if node.name == name and accepts(node)), None)


def _find_field(nodes: Sequence[Node], name: str, accepts: Callable[[Node], bool]) -> int | None:
    """Return the number of the field with this name, or else of the first field after a text with this name."""
    named = _find(nodes, name, accepts)
    if named is not None:
        return named
    place = next((place for place, node in enumerate(nodes) if node.name == name and not node.active), len(nodes))
    return next((node.number for node in nodes[place:] if accepts(node)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task, which is solved if answer and address are correct and the sites contain exactly the requested changes."""

    intent: str  # instruction for the agent
    expert: tuple[Move, ...]
    wrong: tuple[Move, ...]  # moves of a plausible wrong solution
    answer: tuple[str, ...] = ()  # accepted answers; (NOT_POSSIBLE,) for an impossible task
    url: str = ""  # the final address; "" accepts any
    changes: tuple[Change, ...] = ()
    evidence: tuple[str, ...] = ()  # texts on the expert's pages that prove the answer


class Draw:
    """Random choices for a task, and the data seed of the content."""

    def __init__(self, rng: Random, data_seed: int) -> None:
        self.rng = rng
        self.data_seed = data_seed

    def choice(self, items: Iterable[T]) -> T:
        return self.rng.choice(list(items))

    def pair(self, items: Iterable[T]) -> tuple[T, T]:
        """Return two different items."""
        first, second = self.rng.sample(list(items), 2)
        return first, second


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    name: str
    apps: tuple[str, ...]  # sites; a task starts on the first one
    level: int
    held_out: bool  # whether the template is used only in evaluations
    draw: Callable[[Draw], Task]


TEMPLATES: dict[str, Template] = {}


def template(
    *apps: str, level: int, held_out: bool = False
) -> Callable[[Callable[[Draw], Task]], Callable[[Draw], Task]]:
    """Register a function as a template; its tasks use the applications with the given names."""

    def register(draw: Callable[[Draw], Task]) -> Callable[[Draw], Task]:
        name = draw.__name__
        if name in TEMPLATES or level not in LEVELS:
            raise ValueError(f"the template {name!r} needs another name or a level from 1 to 3")
        TEMPLATES[name] = Template(name=name, apps=apps, level=level, held_out=held_out, draw=draw)
        return draw

    return register

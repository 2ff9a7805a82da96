"""What an episode looks like in each of AgentGym's families: the bodies that its clients read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from palestra.server.protocols.protocol_session import Played, Seat

View: TypeAlias = Callable[[Seat, Played, Played], Awaitable[Any]]  # what it began with, what came of it last

NAMES = {
    "babyai": "BabyAI",
    "textcraft": "TextCraft",
    "sciworld": "ScienceWorld",
    "searchqa": "SearchQA",
    "webshop": "WebShop",
}
_FORM = re.compile(r"^- ([^:\n]+)", re.M)


def created(family: str, number: int, played: Played | None) -> Any:
    if family in ("searchqa", "webshop"):
        return number
    if family == "textcraft" and played is not None:
        return {"id": number, "observation": played.text, "done": False, "reward": 0}
    return {"id": number}


def begun(family: str, number: int, played: Played) -> Any:
    if family == "searchqa":
        return played.text
    if family == "webshop":
        return [played.text, None]
    if family == "textcraft":
        return {"id": number, "observation": played.text, "done": False, "reward": 0}
    body = {"observation": played.text, "reward": 0, "score": 0, "done": False}
    if family == "sciworld":
        body |= _task(played) | {"deleted": False}
    return body


def stepped(family: str, played: Played, total: float) -> Any:
    reward, done = played.reward or 0.0, played.done
    if family == "webshop":
        return {"state": played.text, "reward": reward, "done": done, "info": None}
    body: dict[str, Any] = {"observation": played.text, "reward": reward, "done": done}
    if family == "searchqa":
        body["info"] = None
    elif family == "babyai":
        body["score"] = total
    elif family == "sciworld":  # which counts in hundredths
        body |= {"reward": round(100 * reward), "score": _score(played)}
    return body


def closed(family: str, number: int, now: bool) -> Any:
    """`now`: it was open until this call."""
    if family == "searchqa":
        return now
    return {"closed": now} if family == "webshop" else {"closed": now, "id": number}


def _task(first: Played) -> dict[str, Any]:
    info = first.info
    names = {"task_name": "task", "var_num": "variation", "task_description": "goal"}
    return {theirs: info.get(ours, "") for theirs, ours in names.items()}  # an env of somebody else's may say less


def _score(played: Played) -> int:
    return round(100 * float(played.info.get("score", 0.0)))


# What can be read between steps.


async def _observation(_seat: Seat, _first: Played, last: Played) -> str:
    return last.text


async def _detail(_seat: Seat, first: Played, last: Played) -> dict[str, Any]:
    body = {"observation": last.text, "done": last.done, "reward": last.reward or 0.0, "deleted": False}
    if "task" in first.info:
        body |= {**_task(first), "reward": round(100 * (last.reward or 0.0)), "score": _score(last)}
    return body


async def _commands(_seat: Seat, first: Played, _last: Played) -> str:
    """The recipes: the lines behind their heading that read `craft ...`."""
    lines = first.text.partition("Crafting recipes:\n")[2].splitlines()
    return "\n".join(_while_recipes(lines))


def _while_recipes(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if not line.startswith("craft "):
            return
        yield line


async def _goal(_seat: Seat, first: Played, _last: Played) -> str:
    return f"craft {first.info.get('goal', '')}"


async def _action_hint(seat: Seat, first: Played, last: Played) -> dict[str, Any]:
    """The forms of commands, and what can be named now: asked for in a copy, as asking takes a turn."""
    forms = [form for form in _FORM.findall(first.text) if form not in ("help", "objects")]
    found = [] if last.done else (await seat.aside("objects")).splitlines()
    things = [line.strip() for line in found if line.startswith(("\t", " "))]
    return {"possible_actions": forms, "possible_objects": things}


async def _goals(seat: Seat, _first: Played, _last: Played) -> dict[str, Any]:
    return {"goals": await seat.render()}


async def _available_actions(_seat: Seat, first: Played, last: Played) -> dict[str, Any]:
    page = first if last.done else last
    return {"has_search_bar": not last.done, "clickables": [] if last.done else page.info.get("clickables", [])}


async def _instruction_text(_seat: Seat, first: Played, _last: Played) -> str:
    return str(first.info.get("instruction", ""))


_VIEWS: dict[str, dict[str, View]] = {
    "babyai": {"observation": _observation},
    "textcraft": {"observation": _observation, "commands": _commands, "goal": _goal, "detail": _detail},
    "sciworld": {"observation": _observation, "action_hint": _action_hint, "goals": _goals, "detail": _detail},
    "searchqa": {"observation": _observation},
    "webshop": {
        "observation": _observation,
        "available_actions": _available_actions,
        "instruction_text": _instruction_text,
    },
}


def of(family: str, what: str) -> View | None:
    return _VIEWS[family].get(what)


def names(family: str) -> list[str]:
    """All that a family can be asked."""
    return ["create", "reset", "step", "close", "list_envs", *_VIEWS[family]]

"""Build response bodies in the formats that AgentGym's clients expect."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from palestra.envs.games.wordle import consistent_words
from palestra.server.protocols import agentgym_webarena as webarena
from palestra.server.protocols.protocol_session import ProtocolSession, StepResult

# The arguments are the session, the first result and the latest result of the episode.
View: TypeAlias = Callable[[ProtocolSession, StepResult, StepResult], Awaitable[Any]]

NAMES = {
    "babyai": "BabyAI",
    "textcraft": "TextCraft",
    "sciworld": "ScienceWorld",
    "searchqa": "SearchQA",
    "webarena": "WebArena",
    "webshop": "WebShop",
    "wordle": "Wordle",
    "sqlgym": "SQLGym",
}
_COMMAND = re.compile(r"^- ([^:\n]+)", re.M)
_WORDLE_LETTERS = 5
_WORDLE_MARKS = {"G": "g", "Y": "y", "X": "b"}


def env_action(family: str, action: str) -> str:
    """Return the action for the environment: a word in Wordle, and in SQLGym a query that is graded."""
    if family == "wordle":  # a reply without letters is an invalid word, which does not end AgentGym's game
        return f"\\boxed{{{''.join(filter(str.isalpha, action)) or 'x'}}}"
    if family == "sqlgym" and "<sql>" not in action and "<answer>" not in action:
        return f"<answer>{action}</answer>"
    return action


def create_response(family: str, number: int, result: StepResult | None) -> Any:
    if family in ("searchqa", "sqlgym", "webshop"):
        return number
    if family == "textcraft" and result is not None:
        return {"id": number, "observation": result.text, "done": False, "reward": 0}
    return {"env_idx" if family == "webarena" else "id": number}


def reset_response(family: str, number: int, result: StepResult) -> Any:
    if family == "searchqa":
        return result.text
    if family in ("sqlgym", "webshop"):
        return [result.text, None]
    if family == "webarena":
        return webarena.reset_body(result)
    if family == "wordle":
        return {"id": number, "observation": "Let's start Wordle!"}
    if family == "textcraft":
        return {"id": number, "observation": result.text, "done": False, "reward": 0}
    body = {"observation": result.text, "reward": 0, "score": 0, "done": False}
    if family == "sciworld":
        body |= _task(result) | {"deleted": False}
    return body


def step_response(family: str, result: StepResult, total_reward: float) -> Any:
    reward, done = result.reward or 0.0, result.done
    if family in ("sqlgym", "webshop"):
        return {"state": result.text, "reward": reward, "done": done, "info": None}
    if family == "wordle":
        return {"observation": _feedback(result), "reward": reward, "done": done}
    body: dict[str, Any] = {"observation": result.text, "reward": reward, "done": done}
    if family == "searchqa":
        body["info"] = None
    elif family == "babyai":
        body["score"] = total_reward
    elif family == "sciworld":  # ScienceWorld scores are percentages
        body |= {"reward": round(100 * reward), "score": _score(result)}
    return body


def close_response(family: str, number: int, was_open: bool) -> Any:
    if family == "searchqa":
        return was_open
    if family == "webarena":
        return {"closed": "closed"}
    return {"closed": was_open} if family == "webshop" else {"closed": was_open, "id": number}


def _task(first: StepResult) -> dict[str, Any]:
    info = first.info
    names = {"task_name": "task", "var_num": "variation", "task_description": "goal"}
    # Custom environments may not have these fields.
    return {theirs: info.get(ours, "") for theirs, ours in names.items()}


def _feedback(result: StepResult) -> str:
    """Return the marks of the latest guess in AgentGym's notation, such as "b y g g b"."""
    if "invalid" in result.info:
        return "invalid word"
    return " ".join(_WORDLE_MARKS[mark] for mark in _marked_guesses(result)[-1][1][2::4])


def _marked_guesses(result: StepResult) -> list[tuple[str, str]]:
    """Return each guess with its letters and marks, from the lines of the board such as "A=X P=G"."""
    lines = str(result.info.get("suffix", "")).splitlines()[1:]
    return [(line[::4].lower(), line) for line in lines]


def _score(result: StepResult) -> int:
    return round(100 * float(result.info.get("score", 0.0)))


# Responses to GET requests, which return parts of the current state.


async def _observation(_session: ProtocolSession, _first: StepResult, last: StepResult) -> str:
    return last.text


async def _detail(_session: ProtocolSession, first: StepResult, last: StepResult) -> dict[str, Any]:
    body = {"observation": last.text, "done": last.done, "reward": last.reward or 0.0, "deleted": False}
    if "task" in first.info:
        body |= {**_task(first), "reward": round(100 * (last.reward or 0.0)), "score": _score(last)}
    return body


async def _commands(_session: ProtocolSession, first: StepResult, _last: StepResult) -> str:
    """Return the crafting recipes, which are the lines that start with `craft` after the heading."""
    lines = first.text.partition("Crafting recipes:\n")[2].splitlines()
    return "\n".join(_leading_recipes(lines))


def _leading_recipes(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if not line.startswith("craft "):
            return
        yield line


async def _goal(_session: ProtocolSession, first: StepResult, _last: StepResult) -> str:
    return f"craft {first.info.get('goal', '')}"


async def _action_hint(session: ProtocolSession, first: StepResult, last: StepResult) -> dict[str, Any]:
    """Return the commands and the visible objects. Listing the objects takes a turn, so it is done in a fork."""
    commands = [command for command in _COMMAND.findall(first.text) if command not in ("help", "objects")]
    lines = [] if last.done else (await session.peek("objects")).splitlines()
    objects = [line.strip() for line in lines if line.startswith(("\t", " "))]
    return {"possible_actions": commands, "possible_objects": objects}


async def _goals(session: ProtocolSession, _first: StepResult, _last: StepResult) -> dict[str, Any]:
    return {"goals": await session.render()}


async def _available_actions(_session: ProtocolSession, first: StepResult, last: StepResult) -> dict[str, Any]:
    page = first if last.done else last
    return {"has_search_bar": not last.done, "clickables": [] if last.done else page.info.get("clickables", [])}


async def _instruction_text(_session: ProtocolSession, first: StepResult, _last: StepResult) -> str:
    return str(first.info.get("instruction", ""))


async def _webarena_observation(session: ProtocolSession, first: StepResult, last: StepResult) -> str:
    return webarena.observation(session, first, last)


async def _webarena_metadata(_session: ProtocolSession, _first: StepResult, last: StepResult) -> dict[str, Any]:
    return webarena.metadata(last)


async def _wordle_observation(_session: ProtocolSession, first: StepResult, last: StepResult) -> str:
    return "Let's start Wordle!" if last is first else _feedback(last)


async def _filtered_vocab(_session: ProtocolSession, _first: StepResult, last: StepResult) -> list[str]:
    """Return the words that are consistent with the marks of all guesses."""
    return list(consistent_words(_WORDLE_LETTERS, tuple(_marked_guesses(last))))


_VIEWS: dict[str, dict[str, View]] = {
    "babyai": {"observation": _observation},
    "textcraft": {"observation": _observation, "commands": _commands, "goal": _goal, "detail": _detail},
    "sciworld": {"observation": _observation, "action_hint": _action_hint, "goals": _goals, "detail": _detail},
    "searchqa": {"observation": _observation},
    "webarena": {"observation": _webarena_observation, "observation_metadata": _webarena_metadata},
    "webshop": {
        "observation": _observation,
        "available_actions": _available_actions,
        "instruction_text": _instruction_text,
    },
    "wordle": {"observation": _wordle_observation, "filtered_vocab": _filtered_vocab},
    "sqlgym": {"observation": _observation},
}


def find_view(family: str, route: str) -> View | None:
    return _VIEWS[family].get(route)


def routes(family: str) -> list[str]:
    """Return the names of all routes for a family."""
    return ["create", "reset", "step", "close", "list_envs", *_VIEWS[family]]

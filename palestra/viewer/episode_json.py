"""Convert a stored episode to JSON for the episode page: turns, rewards, returns, boards, tool calls and times."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.algorithms import returns_to_go
from palestra.errors import ParsingFailed
from palestra.reports.html import media_type
from palestra.viewer.facts import outcome_of

_SHOWN_SEPARATELY = frozenset(
    {"suffix", "tool_calls", "use_tool", "tools", "tool_form"}
)  # keys of `info` that are displayed elsewhere on the page
_PROMPT_END = re.compile(r"You have \d+ turns?\.\n\Z")


def episode(data: Mapping[str, Any], *, gamma: float, advantages: Sequence[float] | None) -> dict[str, Any]:
    """Return the JSON for an episode, without its tokens; raise ParsingFailed if `data` is not a trajectory."""
    try:
        turns = data["turns"]
        to_go = returns_to_go([float(turn["reward"]) for turn in turns], gamma)
        before: Mapping[str, Any] = data.get("first_info") or _first_board(turns)
        items = []
        for i, turn in enumerate(turns):
            items.append(
                {
                    "shown": _observation(turn["observation"], before, i),
                    "text": turn["text"],
                    "reward": turn["reward"],
                    "to_go": to_go[i],
                    "advantage": None if advantages is None else advantages[i],
                    "terminated": turn["terminated"],
                    "truncated": turn["truncated"],
                    "native_calls": turn.get("tool_calls", []),
                    "tool_calls": turn["info"].get("tool_calls") or [],
                    "info": {k: v for k, v in turn["info"].items() if k not in _SHOWN_SEPARATELY},
                    "agent_seconds": turn.get("agent_seconds", 0.0),
                    "env_seconds": turn.get("env_seconds", 0.0),
                    "calls": [_call(call) for call in turn.get("calls", ())],
                }
            )
            before = turn["info"]
        names = ("env_id", "kwargs", "group", "member", "success", "failure", "attempts", "started", "seconds", "meta")
        return {
            **{name: data.get(name) for name in names},
            "seed": str(data.get("seed")),
            "outcome": outcome_of(data),
            "return": data.get("return", sum(turn["reward"] for turn in turns)),
            "gamma": gamma,
            "turns": items,
            "final": _observation(data["final_observation"], before, len(turns)),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ParsingFailed(f"cannot display this episode: {type(err).__name__}: {err}") from err


def picture(data: Mapping[str, Any], turn: int, part: int) -> tuple[bytes, str]:
    """Return an image from an observation and its media type; only types that cannot contain scripts are allowed."""
    try:
        turns = data["turns"]
        observation = turns[turn]["observation"] if 0 <= turn < len(turns) else data["final_observation"]
        raw = base64.b64decode(observation[part]["base64"])
    except (KeyError, TypeError, IndexError, binascii.Error) as err:
        raise ParsingFailed("no such image") from err
    kind = media_type(raw)
    if kind is not None:
        return raw, kind
    raise ParsingFailed("unsupported image type; PNG, JPEG, GIF and WebP are supported")


def _first_board(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Extract the first board, which is not stored separately, from the end of the prompt.

    The end of the prompt is a board if it has as many lines as the second board, and their lengths are equal or they
    follow the number of turns.
    """
    if not turns or not isinstance(turns[0]["observation"], str):
        return {}
    shape = turns[0]["info"].get("suffix")
    if not isinstance(shape, str) or "\n" not in shape:
        return {}
    rows = shape.split("\n")
    lines = turns[0]["observation"].split("\n")
    prompt, last = "\n".join(lines[: -len(rows)]), lines[-len(rows) :]
    found = list(map(len, last)) == list(map(len, rows)) or _PROMPT_END.search(prompt)
    return {"suffix": "\n".join(last)} if found else {}


def _observation(stored: Any, before: Mapping[str, Any], turn: int) -> dict[str, Any]:
    """Return the role of an observation and its parts in order, with the board as a separate part."""
    parts: list[dict[str, Any]] = []
    for i, part in enumerate([{"type": "text", "text": stored}] if isinstance(stored, str) else stored):
        if part["type"] == "image":
            parts.append({"type": "image", "turn": turn, "part": i})
        else:
            parts.append({"type": "text", "text": part["text"]})
    board = before.get("suffix")
    if parts and isinstance(board, str) and board.strip() and parts[-1]["type"] == "text":
        text = parts[-1]["text"]
        if text.endswith(board):
            parts[-1] = {"type": "text", "text": text[: -len(board)].rstrip("\n")}
            parts.append({"type": "board", "text": board})
    return {"role": "tool" if before.get("use_tool") else "env", "parts": parts}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    logprobs = call["logprobs"]
    return {
        "kind": call["kind"],
        "finish": call["finish"],
        "version": call["version"],
        "split": call["split"],
        "prompt_tokens": call["prefix_tokens"] + len(call["prompt_ids"]),
        "sampled": len(call["ids"]),
        "logprob": sum(logprobs) / len(logprobs) if logprobs else None,
    }

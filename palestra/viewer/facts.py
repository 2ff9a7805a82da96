"""Parse a line in a trajectory file and extract the fields used for listing and filtering episodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from palestra.errors import ParsingFailed

OUTCOMES = ("solved", "unsolved", "truncated", "failed", "unfinished")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFields:
    """Fields of an episode that are stored in the index."""

    env: str
    outcome: str  # one of OUTCOMES
    turns: int
    ret: float
    seed: str  # a string, because a seed may exceed 64 bits
    grp: int
    member: int
    step: int | None  # training step
    error: str | None  # failure as "boundary: kind", such as "engine: EngineFailed"
    ending: str | None
    invalid: int  # number of actions that could not be parsed or violated a rule
    tools: int  # number of tool calls
    tokens: int  # number of sampled tokens
    seconds: float
    started: float
    rewards: str  # JSON list with one reward per turn


def parse(line: bytes) -> dict[str, Any]:
    """Parse a line into the format of stored rollouts; raise ParsingFailed if it does not contain an episode."""
    try:
        data: Any = orjson.loads(line)
    except ValueError:
        try:
            data = json.loads(line)  # unlike orjson, also accepts NaN and lone surrogates
        except (ValueError, RecursionError) as err:
            raise ParsingFailed(f"invalid JSON: {err}") from err
    if isinstance(data, dict) and isinstance(data.get("seed"), float):
        data = json.loads(line)  # orjson rounds seeds that exceed 64 bits
    if isinstance(data, dict) and "prompt" in data and "env" in data:
        data = _recorded(data)
    if not (isinstance(data, dict) and isinstance(data.get("env_id"), str) and isinstance(data.get("turns"), list)):
        raise ParsingFailed("the line does not contain a trajectory")
    return data


def episode_fields(data: Mapping[str, Any]) -> EpisodeFields:
    """Extract the indexed fields; raise ParsingFailed if one is missing or has the wrong type."""
    try:
        turns = data["turns"]
        last: Mapping[str, Any] = turns[-1] if turns else {}
        info = last.get("info") or {}
        failure = data.get("failure")
        step = (data.get("meta") or {}).get("step")
        return EpisodeFields(
            env=_text(data["env_id"]),
            outcome=outcome_of(data),
            turns=len(turns),
            ret=float(data.get("return") or 0.0),
            seed=str(data.get("seed")),
            grp=_small(data.get("group")),
            member=_small(data.get("member")),
            step=step if isinstance(step, int) and abs(step) < 1 << 53 else None,
            error=None if failure is None else _text(f"{failure['boundary']}: {failure['kind']}"),
            ending=_text(info["ending"]) if isinstance(info.get("ending"), str) else None,
            invalid=sum("invalid" in (turn.get("info") or {}) for turn in turns),
            tools=sum(len((turn.get("info") or {}).get("tool_calls") or ()) for turn in turns),
            tokens=sum(len(call["ids"]) for turn in turns for call in turn.get("calls", ())),
            seconds=float(data.get("seconds") or 0.0),
            started=float(data.get("started") or 0.0),
            rewards=orjson.dumps([turn["reward"] for turn in turns]).decode(),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ParsingFailed(f"the line does not contain a valid trajectory: {type(err).__name__}: {err}") from err


def outcome_of(data: Mapping[str, Any]) -> str:
    if data.get("failure") is not None:
        return "failed"
    if data.get("success"):
        return "solved"
    if data.get("success") is None:
        return "unfinished"
    return "truncated" if data["turns"] and data["turns"][-1].get("truncated") else "unsolved"


def _text(value: str) -> str:
    """Replace unpaired surrogates, which the database cannot store."""
    return value.encode("utf-8", "replace").decode()


def _small(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 53 else 0


def _recorded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an episode written by `palestra play --record` or the `Record` wrapper."""
    turns = []
    shown = data["prompt"]
    for turn in data.get("turns") or ():
        turns.append(
            {
                "observation": shown,
                "text": turn["action"],
                "calls": [],
                "tool_calls": [],
                "reward": turn["reward"],
                "terminated": turn["terminated"],
                "truncated": turn["truncated"],
                "info": turn["info"],
                "agent_seconds": 0.0,
                "env_seconds": 0.0,
            }
        )
        shown = turn["observation"]
    return {
        "schema": 1,
        "env_id": data["env"],
        "kwargs": data.get("kwargs") or {},
        "seed": data.get("seed"),
        "group": 0,
        "member": 0,
        "success": data.get("success") if data.get("finished") else None,
        "return": data.get("return", 0.0),
        "turns": turns,
        "final_observation": shown,
        "final_prompt": [],
        "failure": None,
        "attempts": 1,
        "started": 0.0,
        "seconds": 0.0,
        "meta": {},
        "first_info": data.get("info") or {},
    }

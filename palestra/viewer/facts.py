"""A line of a trajectory file -> plain data, and the few facts of it that lists and filters need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from palestra.errors import ParsingFailed

OUTCOMES = ("solved", "unsolved", "truncated", "failed", "unfinished")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the index keeps of an episode."""

    env: str
    outcome: str  # one of OUTCOMES
    turns: int
    ret: float
    seed: str  # a seed may be larger than a database's integers
    grp: int
    member: int
    step: int | None  # of training
    error: str | None  # "boundary: kind" of a failure
    ending: str | None
    invalid: int  # actions that could not be read or broke a rule
    tools: int  # tool calls
    tokens: int  # sampled
    seconds: float
    started: float
    rewards: str  # of each turn, as JSON


def parse(line: bytes) -> dict[str, Any]:
    """The data of a line, in the form that rollouts store; ParsingFailed where it is no episode."""
    try:
        data: Any = orjson.loads(line)
    except ValueError:
        try:
            data = json.loads(line)  # takes NaN and lone surrogates, too
        except ValueError as err:
            raise ParsingFailed(f"this line is not JSON: {err}") from err
    if isinstance(data, dict) and isinstance(data.get("seed"), float):
        data = json.loads(line)  # a seed beyond 64 bits, which the quick reader rounds
    if isinstance(data, dict) and "prompt" in data and "env" in data:
        data = _recorded(data)
    if not (isinstance(data, dict) and isinstance(data.get("env_id"), str) and isinstance(data.get("turns"), list)):
        raise ParsingFailed("this line holds no trajectory")
    return data


def facts_of(data: Mapping[str, Any]) -> Facts:
    """ParsingFailed where a field is missing or of a wrong kind."""
    try:
        turns = data["turns"]
        last: Mapping[str, Any] = turns[-1] if turns else {}
        info = last.get("info") or {}
        failure = data.get("failure")
        step = (data.get("meta") or {}).get("step")
        return Facts(
            env=data["env_id"],
            outcome=outcome_of(data),
            turns=len(turns),
            ret=float(data.get("return") or 0.0),
            seed=str(data.get("seed")),
            grp=_small(data.get("group")),
            member=_small(data.get("member")),
            step=step if isinstance(step, int) and abs(step) < 1 << 53 else None,
            error=None if failure is None else f"{failure['boundary']}: {failure['kind']}",
            ending=info.get("ending") if isinstance(info.get("ending"), str) else None,
            invalid=sum("invalid" in (turn.get("info") or {}) for turn in turns),
            tools=sum(len((turn.get("info") or {}).get("tool_calls") or ()) for turn in turns),
            tokens=sum(len(call["ids"]) for turn in turns for call in turn.get("calls", ())),
            seconds=float(data.get("seconds") or 0.0),
            started=float(data.get("started") or 0.0),
            rewards=orjson.dumps([turn["reward"] for turn in turns]).decode(),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise ParsingFailed(f"this line holds no trajectory: {type(err).__name__} {err}") from err


def outcome_of(data: Mapping[str, Any]) -> str:
    if data.get("failure") is not None:
        return "failed"
    if data.get("success"):
        return "solved"
    if data.get("success") is None:
        return "unfinished"
    return "truncated" if data["turns"] and data["turns"][-1].get("truncated") else "unsolved"


def _small(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 53 else 0


def _recorded(data: Mapping[str, Any]) -> dict[str, Any]:
    """An episode as `palestra play --record` and the wrapper `Record` write it."""
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

"""OpenEnv's records: what its requests mean here, and what it is answered.

An action is `{"action": "..."}`; `text` and `message` are read as well, as clients of text environments name it. An
observation is `{"text": ..., "info": ..., ...}`, with `parts` where there are pictures.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from palestra.remote.protocol import Fault, fault
from palestra.server.protocols.protocol_session import Played, told
from palestra.server.protocols.toolbox import is_seed
from palestra.server.request import Refused

ACTION_KEYS = ("action", "text", "message")
LONGEST_NAME = 255


class ResetAsked(NamedTuple):
    """A reset's fields."""

    seed: int | None
    episode_id: str  # "": none was given
    options: dict[str, Any]


def reset_of(data: dict[str, Any]) -> ResetAsked:
    """Seed and episode are named; the rest are the environment's own options."""
    rest = dict(data)
    seed, episode = rest.pop("seed", None), rest.pop("episode_id", None)
    rest.pop("request_id", None)
    if seed is not None and not is_seed(seed):
        raise Refused(fault("bad_value", "seed is a whole number from 0 up"))
    if episode is not None and not (isinstance(episode, str) and len(episode) <= LONGEST_NAME):
        raise Refused(fault("bad_value", f"episode_id is a string of at most {LONGEST_NAME} characters"))
    return ResetAsked(seed, episode or "", rest)


def action_of(data: dict[str, Any]) -> str:
    """The words of an action."""
    given = [key for key in ACTION_KEYS if key in data]
    others = data.keys() - {*ACTION_KEYS, "metadata", "request_id"}
    if len(given) != 1 or others or not isinstance(data[given[0]], str):
        raise Refused(fault("bad_value", 'an action reads {"action": "..."}; GET schema tells more'))
    action: str = data[given[0]]
    return action


def result_of(played: Played, episode: str) -> dict[str, Any]:
    """What a reset or a step led to."""
    observation: dict[str, Any] = {
        "text": played.text,
        "info": played.info,
        "terminated": played.terminated,
        "truncated": played.truncated,
        "episode_id": episode,
    }
    if not isinstance(played.observation, str):
        observation["parts"] = played.observation
    return {"observation": observation, "reward": played.reward, "done": played.done}


_CODES = {
    "bad_request": "VALIDATION_ERROR",
    "bad_value": "VALIDATION_ERROR",
    "capacity": "CAPACITY_REACHED",
    "quota": "CAPACITY_REACHED",
    "draining": "CAPACITY_REACHED",
    "unavailable": "CAPACITY_REACHED",
    "session_gone": "SESSION_ERROR",
    "unknown_session": "SESSION_ERROR",
}


def error_of(found: Fault, *, making: bool = False) -> dict[str, Any]:
    """An error on the socket. `making`: it came while an environment was made."""
    code = _CODES.get(found.code, "EXECUTION_ERROR")
    if making and found.code == "env_failed":
        code = "FACTORY_ERROR"
    data: dict[str, Any] = {"message": found.message, "code": code, "fault": found.code, **told(found)}
    if isinstance(found.retry_after, float):
        data["retry_after"] = found.retry_after
    return {"type": "error", "data": data}


_METADATA = {"type": "object", "default": {}}
SCHEMA: dict[str, Any] = {
    "action": {
        "title": "Action",
        "type": "object",
        "properties": {
            "action": {"type": "string", "description": "One action, written as the first observation says."},
            "metadata": _METADATA,
        },
        "required": ["action"],
        "additionalProperties": False,
    },
    "observation": {
        "title": "Observation",
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "parts": {"type": "array", "items": {"type": "object"}, "description": "Text and pictures, in order."},
            "info": {"type": "object"},
            "terminated": {"type": "boolean"},
            "truncated": {"type": "boolean"},
            "episode_id": {"type": "string"},
            "done": {"type": "boolean"},
            "reward": {"type": ["number", "null"]},
        },
        "required": ["text", "info"],
    },
    "state": {
        "title": "State",
        "type": "object",
        "properties": {
            "episode_id": {"type": ["string", "null"]},
            "step_count": {"type": "integer", "minimum": 0},
            "env": {"type": "string"},
            "seed": {"type": ["integer", "null"]},
            "total_reward": {"type": "number"},
            "done": {"type": "boolean"},
        },
        "required": ["episode_id", "step_count"],
    },
}

"""Decode requests and build responses for OpenEnv's protocol.

An action is `{"action": "..."}`. The keys `text` and `message` are also accepted because clients of text environments
use them. An observation is `{"text": ..., "info": ..., ...}`, with an additional `parts` key if it contains images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from palestra.remote.protocol import Fault, fault
from palestra.server.protocols.env_tools import is_seed
from palestra.server.protocols.protocol_session import ProtocolSession, StepResult, error_details
from palestra.server.request import RequestError

ACTION_KEYS = ("action", "text", "message")
MAX_ID_LENGTH = 255


class ResetFields(NamedTuple):
    """Fields in a reset request."""

    seed: int | None
    episode_id: str  # "" if the client did not send an id
    options: dict[str, Any]


def parse_reset(data: dict[str, Any]) -> ResetFields:
    """Parse the seed and the episode id. All other fields are environment options."""
    options = dict(data)
    seed, episode_id = options.pop("seed", None), options.pop("episode_id", None)
    options.pop("request_id", None)
    if seed is not None and not is_seed(seed):
        raise RequestError(fault("bad_value", "seed must be a non-negative integer"))
    if episode_id is not None and not (isinstance(episode_id, str) and len(episode_id) <= MAX_ID_LENGTH):
        raise RequestError(fault("bad_value", f"episode_id must be a string of at most {MAX_ID_LENGTH} characters"))
    return ResetFields(seed, episode_id or "", options)


def parse_action(data: dict[str, Any]) -> str:
    """Return the text of an action."""
    keys = [key for key in ACTION_KEYS if key in data]
    others = data.keys() - {*ACTION_KEYS, "metadata", "request_id"}
    if len(keys) != 1 or others or not isinstance(data[keys[0]], str):
        raise RequestError(fault("bad_value", 'an action must be {"action": "TEXT"}; see /openenv/ID/schema'))
    action: str = data[keys[0]]
    return action


def step_response(result: StepResult, episode_id: str) -> dict[str, Any]:
    """Return the response to a reset or a step."""
    observation: dict[str, Any] = {
        "text": result.text,
        "info": result.info,
        "terminated": result.terminated,
        "truncated": result.truncated,
        "episode_id": episode_id,
    }
    if not isinstance(result.observation, str):
        observation["parts"] = result.observation
    return {"observation": observation, "reward": result.reward, "done": result.done}


def state_response(session: ProtocolSession | None, episode_id: str | None) -> dict[str, Any]:
    """Return the state of an episode."""
    if session is None or session.first is None or session.last is None:
        return {"episode_id": None, "step_count": 0}
    return {
        "episode_id": episode_id,
        "step_count": session.steps,
        "env": session.env,
        "seed": session.first.info.get("seed"),
        "total_reward": session.total_reward,
        "done": session.last.done,
    }


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


def error_message(error: Fault, *, creating: bool = False) -> dict[str, Any]:
    """Return an error message for the WebSocket. `creating` is True if creating the environment failed."""
    code = _CODES.get(error.code, "EXECUTION_ERROR")
    if creating and error.code == "env_failed":
        code = "FACTORY_ERROR"
    data: dict[str, Any] = {"message": error.message, "code": code, "fault": error.code, **error_details(error)}
    if isinstance(error.retry_after, float):
        data["retry_after"] = error.retry_after
    return {"type": "error", "data": data}


_METADATA = {"type": "object", "default": {}}
SCHEMA: dict[str, Any] = {
    "action": {
        "title": "TextAction",
        "type": "object",
        "properties": {
            "action": {"type": "string", "description": "One action, in the format given in the first observation."},
            "metadata": _METADATA,
        },
        "required": ["action"],
        "additionalProperties": False,
    },
    "observation": {
        "title": "TextObservation",
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "parts": {"type": "array", "items": {"type": "object"}, "description": "Text and images, in order."},
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
        "title": "EpisodeState",
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

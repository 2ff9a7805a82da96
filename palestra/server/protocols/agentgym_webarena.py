"""Build response bodies in the formats that AgentGym's WebArena client expects."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from palestra.server.protocols.protocol_session import ProtocolSession, StepResult

_NODE = re.compile(r"^\t*(\[(\d+)\] .*)$", re.M)
_FENCE = re.compile(r"```(.*?)```", re.S)


def reset_body(first: StepResult) -> dict[str, Any]:
    page, url = _page(first)
    return {"observation": page, "sites": [urlsplit(url).netloc], "object": _objective(first)}


def step_body(session: ProtocolSession, first: StepResult, last: StepResult) -> dict[str, Any]:
    info = {"success": bool(last.info.get("success"))} if last.done else {}
    return {
        "observation": last.text if last.done else observation(session, first, last),
        "reward": last.reward or 0.0,
        "terminated": last.done,
        "truncated": last.truncated,
        "info": info,
    }


def observation(session: ProtocolSession, first: StepResult, last: StepResult) -> str:
    """Return the observation as WebArena's prompt shows it to the model."""
    page, url = _page(last)
    fences = _FENCE.findall(session.last_action)
    action = fences[-1].strip() if fences else session.last_action.strip()
    return (
        f"OBSERVATION:\n{page}\nURL: {url}\nOBJECTIVE: {_objective(first)}\n"
        f"PREVIOUS ACTION: {action if session.steps else 'None'}"
    )


def metadata(last: StepResult) -> dict[str, Any]:
    """Return the lines of the accessibility tree by the ids of their elements."""
    nodes = {number: {"text": line} for line, number in _NODE.findall(_page(last)[0])}
    return {"text": {"obs_nodes_info": nodes}, "image": {"obs_nodes_info": {}}}


def _objective(first: StepResult) -> str:
    return str(first.info.get("goal", ""))


def _page(result: StepResult) -> tuple[str, str]:
    """Return the page and its address; the prompt of an episode has instructions before the page."""
    text, _, url = result.text.rpartition("\nURL: ")
    task = f"\n\nTask: {result.info.get('goal', '')}\n\n"
    return text.rpartition(task)[2], url

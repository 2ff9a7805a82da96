"""Convert trajectories to JSON data and back.

A prompt that extends the previous call's tokens is stored as the number of shared tokens and the new tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from palestra.errors import ParsingFailed
from palestra.plain_data import plain_data
from palestra.rollout.types import Failure, Trajectory, Turn
from palestra.types import Action, Call, Observation

SCHEMA = 1


def to_json(trajectory: Trajectory) -> dict[str, Any]:
    """Return the trajectory as JSON data: dicts, lists, strings and numbers."""
    previous: list[int] = []  # the previous call's prompt and reply
    turns = []
    for turn in trajectory.turns:
        calls = []
        for call in turn.action.calls:
            calls.append(_call_to_json(call, previous))
            previous = call.prompt_ids + call.ids
        turns.append(
            {
                "observation": _observation_to_json(turn.observation),
                "text": turn.action.text,
                "calls": calls,
                "tool_calls": list(turn.action.tool_calls),
                "reward": turn.reward,
                "terminated": turn.terminated,
                "truncated": turn.truncated,
                "info": plain_data(turn.info),
                "agent_seconds": turn.agent_seconds,
                "env_seconds": turn.env_seconds,
            }
        )
    return {
        "schema": SCHEMA,
        "env_id": trajectory.env_id,
        "kwargs": plain_data(trajectory.kwargs),
        "seed": trajectory.seed,
        "task_id": trajectory.task_id,
        "group": trajectory.group,
        "member": trajectory.member,
        "success": trajectory.success,
        "return": trajectory.total_reward,
        "turns": turns,
        "final_observation": _observation_to_json(trajectory.final_observation),
        "final_prompt": list(trajectory.final_prompt),
        "failure": None if trajectory.failure is None else asdict(trajectory.failure),
        "attempts": trajectory.attempts,
        "started": trajectory.started,
        "seconds": trajectory.seconds,
        "meta": plain_data(trajectory.meta),
    }


def from_json(data: Mapping[str, Any]) -> Trajectory:
    """Return the trajectory in `data`; raise ParsingFailed if it is invalid or has a different schema version."""
    try:
        if data["schema"] != SCHEMA:
            raise ParsingFailed(f"unsupported trajectory schema {data['schema']!r}; this version reads schema {SCHEMA}")
        previous: list[int] = []
        turns = []
        for item in data["turns"]:
            calls = []
            for stored in item["calls"]:
                call = _call_from_json(stored, previous)
                calls.append(call)
                previous = call.prompt_ids + call.ids
            turns.append(
                Turn(
                    observation=_observation_from_json(item["observation"]),
                    action=Action(text=item["text"], calls=tuple(calls), tool_calls=tuple(item["tool_calls"])),
                    reward=item["reward"],
                    terminated=item["terminated"],
                    truncated=item["truncated"],
                    info=item["info"],
                    agent_seconds=item["agent_seconds"],
                    env_seconds=item["env_seconds"],
                )
            )
        failure = data["failure"]
        return Trajectory(
            env_id=data["env_id"],
            kwargs=data["kwargs"],
            seed=data["seed"],
            task_id=data.get("task_id", ""),
            group=data["group"],
            member=data["member"],
            turns=tuple(turns),
            final_observation=_observation_from_json(data["final_observation"]),
            final_prompt=tuple(data.get("final_prompt", ())),
            success=data["success"],
            failure=None if failure is None else Failure(**failure),
            attempts=data["attempts"],
            started=data["started"],
            seconds=data["seconds"],
            meta=data["meta"],
        )
    except (KeyError, TypeError, IndexError) as err:
        raise ParsingFailed(f"not a trajectory of schema {SCHEMA}: {type(err).__name__} {err}") from err


def _call_to_json(call: Call, previous: list[int]) -> dict[str, Any]:
    shared = len(previous) if previous and call.prompt_ids[: len(previous)] == previous else 0
    stored: dict[str, Any] = {
        "prefix_tokens": shared,  # number of leading tokens that are the same as in the previous call
        "prompt_ids": call.prompt_ids[shared:],
        "ids": call.ids,
        "logprobs": call.logprobs,
        "finish": call.finish,
        "version": call.version,
        "kind": call.kind,
        "split": call.split,
    }
    if call.usage is not None:
        stored["usage"] = list(call.usage)
    if call.prompt is not None:
        stored["prompt"] = [
            {"role": message["role"], "content": _observation_to_json(message["content"])} for message in call.prompt
        ]
    return stored


def _call_from_json(stored: Mapping[str, Any], previous: list[int]) -> Call:
    prompt, usage = stored.get("prompt"), stored.get("usage")
    return Call(
        prompt_ids=previous[: stored["prefix_tokens"]] + stored["prompt_ids"],
        ids=stored["ids"],
        logprobs=stored["logprobs"],
        finish=stored["finish"],
        version=stored["version"],
        kind=stored["kind"],
        split=stored["split"],
        prompt=None
        if prompt is None
        else [{"role": m["role"], "content": _observation_from_json(m["content"])} for m in prompt],
        usage=None if usage is None else (usage[0], usage[1]),
    )


def _observation_to_json(observation: Observation) -> Any:
    if isinstance(observation, str):
        return observation
    return [
        {"type": "image", "base64": base64.b64encode(part["image"]).decode()} if part["type"] == "image" else part
        for part in observation
    ]


def _observation_from_json(stored: Any) -> Observation:
    if isinstance(stored, str):
        return stored
    return [
        {"type": "image", "image": base64.b64decode(part["base64"])} if part["type"] == "image" else part
        for part in stored
    ]

"""Convert trajectories to JSON data and back.

A prompt that extends the previous call's tokens is stored as the number of shared tokens and the new tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from palestra.errors import ParsingFailed
from palestra.rollout.types import Failure, Trajectory, Turn
from palestra.types import Action, Call, Observation

SCHEMA = 1
# Limits for each `info`, `kwargs` and `meta`; larger values are cut off.
MAX_DEPTH = 50
MAX_ITEMS = 100_000
MAX_CHARACTERS = 8 << 20
MAX_BITS = 4_096  # longer integers are written in hexadecimal, because Python limits the length of decimal ones


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
                "info": _plain(turn.info),
                "agent_seconds": turn.agent_seconds,
                "env_seconds": turn.env_seconds,
            }
        )
    return {
        "schema": SCHEMA,
        "env_id": trajectory.env_id,
        "kwargs": _plain(trajectory.kwargs),
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
        "meta": _plain(trajectory.meta),
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


def _plain(value: Any) -> Any:
    """Return a value, such as an `info`, as JSON data of limited size."""
    if not isinstance(value, Mapping):
        return _PlainData(MAX_ITEMS, MAX_CHARACTERS).of(value)
    items, characters = MAX_ITEMS, MAX_CHARACTERS
    data: dict[str, Any] = {}
    for key, item in value.items():
        # An item may use half of what is left, so that a huge one does not displace the others.
        plain = _PlainData(items // 2, characters // 2)
        name = plain.key(key)
        data[name] = plain.of(item, (id(value),))
        items, characters = items - items // 2 + plain.items - 1, characters - characters // 2 + plain.characters
        if items <= 1:
            break
    return data


class _PlainData:
    """Converts a value to JSON data; objects that JSON cannot represent become their repr.

    An environment may put anything into `info`: references to itself, deep nesting, or lists that share their items
    and grow exponentially when written out. Whatever exceeds a limit is cut off.
    """

    def __init__(self, items: int, characters: int) -> None:
        self.items = items  # number of items that may still be added
        self.characters = characters

    def of(self, value: Any, inside: tuple[int, ...] = ()) -> Any:
        """Convert a value; `inside` contains the ids of the collections around it."""
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= MAX_BITS else hex(value)
        if isinstance(value, str):
            return self._text(value)
        if id(value) in inside:
            return "... (refers to itself)"
        if len(inside) >= MAX_DEPTH:
            return "... (nested too deeply)"
        inside = (*inside, id(value))
        if isinstance(value, Mapping):
            return {self.key(key): self.of(item, inside) for key, item in self._limited(value.items())}
        if isinstance(value, (list, tuple)):
            return [self.of(item, inside) for item in self._limited(value)]
        if isinstance(value, (set, frozenset)):
            return sorted((self.of(item, inside) for item in self._limited(value)), key=repr)
        return self._text(_repr(value))

    def key(self, key: Any) -> str:
        return self._text(key if isinstance(key, str) else _repr(key))

    def _limited(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self.items <= 0:
                break
            self.items -= 1
            yield item

    def _text(self, text: str) -> str:
        length = len(text)
        if length > self.characters:
            text = f"{text[: self.characters]}... ({length} characters)"
        self.characters = max(0, self.characters - length)
        return text


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as err:  # noqa: BLE001  # the class belongs to the environment
        return f"<{type(value).__name__} whose repr raises {type(err).__name__}>"

"""Convert messages with images and tool calls to the OpenAI chat API format."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.types import Message, Observation

_KINDS = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))


def has_images(observation: Observation) -> bool:
    return not isinstance(observation, str) and any(part["type"] == "image" for part in observation)


def to_openai(messages: Sequence[Message]) -> list[Message]:
    """Return messages with images as data URLs and tool-call arguments as JSON strings."""
    return [message if _is_plain(message) else _converted(message) for message in messages]


def _is_plain(message: Message) -> bool:
    return isinstance(message["content"], str) and "tool_calls" not in message


def _converted(message: Mapping[str, Any]) -> Message:
    new = dict(message)
    if not isinstance(new["content"], str):
        new["content"] = [_part(part) for part in new["content"]]
    if "tool_calls" in new:
        new["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in new["tool_calls"]
        ]
    return new  # type: ignore[return-value]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] != "image":
        return dict(part)
    image: bytes = part["image"]
    kind = next((name for magic, name in _KINDS if image.startswith(magic)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{b64encode(image).decode()}"}}

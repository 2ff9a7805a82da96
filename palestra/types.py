"""The nouns that travel between an environment and whoever plays it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ImagePart(TypedDict):
    type: Literal["image"]
    image: bytes  # an encoded picture (PNG, JPEG)


Part: TypeAlias = TextPart | ImagePart
Observation: TypeAlias = str | Sequence[Part]  # plain text, or text and pictures in order


class Message(TypedDict):
    role: Role
    content: Observation


class Step(NamedTuple):
    """What one action led to; unpacks as Gymnasium's five-tuple."""

    observation: Observation
    reward: float
    terminated: bool  # the task itself is over
    truncated: bool  # it was cut short from outside (a horizon)
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


def text_of(observation: Observation) -> str:
    """The words of an observation; each picture is shown as `[image]`."""
    if isinstance(observation, str):
        return observation
    return "".join(part["text"] if part["type"] == "text" else "[image]" for part in observation)

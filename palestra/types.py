"""The nouns that travel between an environment and whoever plays it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model: exactly what it read and what it sampled."""

    prompt_ids: list[int]  # empty where the engine shows no ids; then `prompt` holds what was sent
    ids: list[int]  # never re-tokenised
    logprobs: list[float]  # of each id under the model: temperature 1, no filter
    finish: str  # "stop" or "length"
    version: int  # of the weights
    kind: str = "act"  # or "reflect", "summary"
    split: str | None = None  # why the prompt does not extend the call before it: "template", "tokens", "context"
    prompt: list[Message] | None = None
    usage: tuple[int, int] | None = None  # tokens of prompt and reply, where they are counted and no ids are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What an agent does in one turn: the text the environment is given, and the calls that led to it."""

    text: str
    calls: tuple[Call, ...] = ()  # in order; the last one sampled `text`. Empty for players without a model
    tool_calls: tuple[dict[str, Any], ...] = ()  # native ones: "name", "arguments", "id" where a server gave one

    @property
    def prompt_ids(self) -> list[int]:
        return self.calls[-1].prompt_ids if self.calls else []

    @property
    def action_ids(self) -> list[int]:
        return self.calls[-1].ids if self.calls else []

    @property
    def logprobs(self) -> list[float]:
        return self.calls[-1].logprobs if self.calls else []


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

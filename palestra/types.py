"""Data that environments and agents exchange: observations, messages, actions and steps."""

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
    image: bytes  # encoded as PNG or JPEG


Part: TypeAlias = TextPart | ImagePart
Observation: TypeAlias = str | Sequence[Part]  # plain text, or text and images in order


class Message(TypedDict):
    role: Role
    content: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call: the exact tokens of its prompt and of its reply."""

    prompt_ids: list[int]  # empty if the engine returns no ids; then `prompt` holds the messages
    ids: list[int]  # sampled, never re-tokenised
    logprobs: list[float]  # of each sampled id under the model, at temperature 1 and without top-p or top-k
    finish: str  # "stop" or "length"
    version: int  # of the weights
    kind: str = "act"  # or "reflect", "summary"
    split: str | None = None  # reason why the prompt does not extend the previous call: "template", "tokens", "context"
    prompt: list[Message] | None = None
    usage: tuple[int, int] | None = None  # number of prompt and reply tokens, if the engine returns no ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The action of one turn: the text for the environment, and the model calls that produced it."""

    text: str
    calls: tuple[Call, ...] = ()  # in order; the last one sampled `text`; empty for agents without a model
    tool_calls: tuple[dict[str, Any], ...] = ()  # native ones: "name", "arguments", "id" if the server set one

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
    """The result of one action; unpacks like Gymnasium's five-tuple."""

    observation: Observation
    reward: float
    terminated: bool  # the task has ended
    truncated: bool  # the episode was cut short from outside, for example by a horizon
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


def text_of(observation: Observation) -> str:
    """Return the text of an observation; each image becomes `[image]`."""
    if isinstance(observation, str):
        return observation
    return "".join(part["text"] if part["type"] == "text" else "[image]" for part in observation)

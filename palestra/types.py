"""Data that environments and agents exchange: observations, messages, actions and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from palestra.errors import EnvFailed

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ImagePart(TypedDict):
    type: Literal["image"]
    image: bytes  # in PNG or JPEG format


Part: TypeAlias = TextPart | ImagePart
Observation: TypeAlias = str | Sequence[Part]  # plain text, or a sequence of texts and images


class Message(TypedDict):
    role: Role
    content: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call, with the exact tokens in its prompt and reply."""

    prompt_ids: list[int]  # empty if the engine returns no ids; `prompt` then contains the messages
    ids: list[int]  # sampled token ids, never re-tokenized
    # Log-probability of each sampled id without filters, at temperature 1 or, with `Sampling.tempered_logprobs`, at the
    # sampling temperature.
    logprobs: list[float]
    finish: str  # "stop", "length", or "empty" if a server returned neither text nor tool calls
    version: int  # version of the weights
    kind: str = "act"  # "act", "reflect" or "summary"
    split: str | None = None  # set if the prompt does not extend the previous call: "template", "tokens" or "context"
    prompt: list[Message] | None = None
    usage: tuple[int, int] | None = None  # prompt tokens and reply tokens; None if the engine returns token ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An agent's action in one turn: the text for the environment, and the model calls that produced it."""

    text: str
    calls: tuple[Call, ...] = ()  # model calls in order, the last of which generated `text`; empty without a model
    tool_calls: tuple[dict[str, Any], ...] = ()  # native tool calls: "name", "arguments", and "id" if available

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
    """The result of one action, which can be unpacked like Gymnasium's five-tuple."""

    observation: Observation
    reward: float
    terminated: bool  # the task has ended
    truncated: bool  # the episode was truncated, for example by a horizon
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


_INFINITY = float("inf")


def finite_reward(reward: Any) -> float:
    """Return a reward as a float; raise EnvFailed if it is not a finite number. A bool is not a number here."""
    if type(reward) is float and -_INFINITY < reward < _INFINITY:
        return reward
    if not isinstance(reward, bool) and isinstance(reward, Real):
        try:
            value = float(reward)
        except OverflowError:
            value = _INFINITY
        if -_INFINITY < value < _INFINITY:
            return value
    raise EnvFailed(f"the reward of a step must be a finite number, got {repr(reward)[:100]}")


def text_of(observation: Observation) -> str:
    """Return an observation as text, with `[image]` in place of each image."""
    if isinstance(observation, str):
        return observation
    return "".join(part["text"] if part["type"] == "text" else "[image]" for part in observation)

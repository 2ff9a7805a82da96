"""Engine: token ids in, sampled ids and log-probabilities out. One interface over every way to run a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from palestra.errors import BadValue
from palestra.types import Message

Finish = Literal["stop", "length"]  # a stop token or string, or the token limit (its own or the context's)


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that agents and engines use."""

    chat_template: Any
    eos_token_id: Any

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: Any, *, skip_special_tokens: bool = ...) -> Any: ...
    def apply_chat_template(self, conversation: Any, /, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample one reply. The defaults sample the model as it is."""

    max_tokens: int = 512
    temperature: float = 1.0  # 0: the likeliest token, always
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    stop: tuple[str, ...] = ()  # a reply ends before the first of these
    stop_ids: tuple[int, ...] = ()  # beside the model's own
    seed: int | None = None  # the same seed and prompt give the same reply, whatever else is in the batch

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise BadValue(f"max_tokens is at least 1, got {self.max_tokens}")
        if self.temperature < 0:
            raise BadValue(f"temperature is 0 or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise BadValue(f"top_p lies in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise BadValue(f"top_k is 0 (off) or more, got {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise BadValue(f"min_p lies in [0, 1], got {self.min_p}")
        if type(self.stop) is not tuple or "" in self.stop:
            raise BadValue(f"stop is a tuple of non-empty strings, got {self.stop!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply, exactly as the model read its prompt and sampled its tokens."""

    ids: list[int]  # as sampled, the stop token included where one ended the reply
    logprobs: list[float]  # of each id under the model itself: temperature 1, no filter
    text: str  # what the ids say, without the stop token or stop string
    finish: Finish
    version: int  # of the weights
    prompt_ids: list[int]  # as read
    tool_calls: list[dict[str, Any]] = field(default_factory=list)  # native ones, from servers that parse them
    usage: tuple[int, int] | None = None  # tokens of prompt and reply where a server counts them and shows no ids


class Engine(ABC):
    """Runs a model for many conversations at once; every `generate` may be awaited beside thousands of others.

    An engine with a `tokenizer` takes ids and gives ids: `generate`. One without (a server that shows only text) takes
    messages: `chat`; its completions carry no ids, so they can be evaluated but not trained on.
    """

    tokenizer: Tokenizer | None = None
    version: int = 0  # grows by one with every change of the weights
    max_context: int | None = None  # tokens of prompt and reply together, where known

    @abstractmethod
    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        """Sample a reply. Calls with the same `conversation` share a prefix, which an engine may keep cached.

        Raises EngineFailed where the engine broke (infrastructure), BadValue where the request cannot work.
        """

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        """Sample a reply to chat messages; for engines without a tokenizer."""
        del messages, sampling, tools
        raise BadValue(f"{type(self).__name__} takes token ids; render the messages with its tokenizer")

    async def ready(self) -> None:
        """Find out what the engine can do; `tokenizer` and `max_context` hold from here on. Free the second time."""

    def forget(self, conversation: Hashable) -> None:
        """The conversation is over: what is cached for it may go."""

    async def aclose(self) -> None:
        """Give back what the engine holds. May be called twice."""

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

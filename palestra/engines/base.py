"""Interfaces for inference engines, which sample token ids and their log-probabilities for a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from palestra.errors import BadValue
from palestra.types import Message

# "stop": a stop token or stop string; "length": max_tokens or the context window; "empty": a server returned neither
# text nor tool calls
Finish = Literal["stop", "length", "empty"]

# Named tensors, such as those returned by `model.named_parameters()` or `model.state_dict()`.
Weights = Mapping[str, Any] | Iterable[tuple[str, Any]]


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that agents and engines use."""

    chat_template: Any
    eos_token_id: Any

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: Any, *, skip_special_tokens: bool = ...) -> Any: ...
    def apply_chat_template(self, conversation: Any, /, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters for one request. The defaults sample from the model's unmodified distribution."""

    max_tokens: int = 512
    temperature: float = 1.0  # 0 means greedy decoding
    top_p: float = 1.0
    top_k: int = 0  # 0 disables the filter
    min_p: float = 0.0
    stop: tuple[str, ...] = ()  # the reply text ends before the first of these strings
    stop_ids: tuple[int, ...] = ()  # stop tokens in addition to the model's
    seed: int | None = None  # the same seed and prompt always yield the same reply, regardless of the batch
    tempered_logprobs: bool = False  # return log-probabilities at `temperature` (before filters) instead of at 1

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise BadValue(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.temperature < 0:
            raise BadValue(f"temperature must be 0 or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise BadValue(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise BadValue(f"top_k must be 0 (off) or more, got {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise BadValue(f"min_p must be in [0, 1], got {self.min_p}")
        if type(self.stop) is not tuple or "" in self.stop:
            raise BadValue(f"stop must be a tuple of non-empty strings, got {self.stop!r}")

    def of_request(self, *, max_tokens: int, seed: int | None) -> Sampling:
        """Return a copy with another maximum length and seed. Several times as fast as `dataclasses.replace`."""
        return Sampling(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            stop=self.stop,
            stop_ids=self.stop_ids,
            seed=seed,
            tempered_logprobs=self.tempered_logprobs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply with the exact tokens the model read and sampled."""

    ids: list[int]  # sampled ids, including the stop token if one ended the reply
    # Log-probability of each id under the model without filters, at temperature 1 or, if `Sampling.tempered_logprobs`
    # is set, at the sampling temperature (1 for greedy decoding).
    logprobs: list[float]
    text: str  # the decoded ids without the stop token or stop string
    finish: Finish
    version: int  # version of the weights that sampled the first token
    prompt_ids: list[int]  # the prompt ids that the model read
    tool_calls: list[dict[str, Any]] = field(default_factory=list)  # tool calls parsed by the server
    usage: tuple[int, int] | None = None  # (prompt tokens, completion tokens) from servers that return no ids


class Engine(ABC):
    """Runs a model for many conversations at once. Thousands of `generate` calls may be awaited concurrently.

    An engine with a `tokenizer` maps token ids to token ids (`generate`). An engine without one (a server that returns
    only text) maps messages to text (`chat`); its completions contain no ids, so they can be used for evaluation but
    not for training.
    """

    tokenizer: Tokenizer | None = None
    version: int = 0  # version of the current weights
    max_context: int | None = None  # maximum length of prompt plus reply in tokens, if known

    @abstractmethod
    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        """Sample a reply. Calls with the same `conversation` share a prefix, which the engine may cache.

        Raises EngineFailed if the engine fails (an infrastructure error) and BadValue if the request is invalid.
        """

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        """Sample a reply to chat messages. Only for engines without a tokenizer."""
        del messages, sampling, tools
        raise BadValue(f"{type(self).__name__} takes token ids; render the messages with its tokenizer")

    async def score(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each id given the previous ones, at temperature 1; 0 for the first id."""
        del ids
        raise BadValue(f"{type(self).__name__} does not return log-probabilities of prompts; use OpenAIEngine")

    async def ready(self) -> None:
        """Detect the engine's capabilities; `tokenizer` and `max_context` do not change afterwards. Idempotent."""

    def forget(self, conversation: Hashable) -> None:
        """Free everything cached for a finished conversation."""

    async def aclose(self) -> None:
        """Release all resources. Idempotent."""

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class PolicyEngine(Engine):
    """An engine whose weights a trainer can update while conversations are in progress.

    An engine that shares its tensors with the trainer is updated in place:

    ```
    async with engine.paused():
        optimizer.step()
        await engine.publish(None, engine.version + 1)
    ```

    An engine with its own copy receives the new tensors: `await engine.publish(model.state_dict(), version)`.
    """

    shares_weights: bool = False  # True: the engine samples from the trainer's tensors, so publish(None, ...) suffices
    supports_lora: bool = False  # True: the engine runs models with LoRA adapters; False: it needs merged weights
    starts_empty: bool = False  # True: the engine has no weights before the first `publish`

    @abstractmethod
    async def publish(self, weights: Weights | None, version: int) -> None:
        """Use new weights from the next step on; completions that start after that have this `version`.

        `weights` maps names to the tensors to replace, or is None if the trainer has already written them in place
        (`shares_weights`, between `pause` and `resume`). `version` must exceed the current version. Nothing cached
        from older weights is used afterwards; replies in progress continue under the new weights.
        """

    async def verify(
        self, probes: Sequence[tuple[Sequence[int], Sequence[float]]], weights: Weights | None
    ) -> dict[str, float]:
        """Check that the engine samples from the weights that were published last, and return metrics.

        Each probe is a sequence of token ids with the learner's log-probability of every id at temperature 1. Raises
        EngineFailed, naming the parameters concerned, if the engine's log-probabilities differ too much. Engines that
        share the trainer's tensors have nothing to check.
        """
        del probes, weights
        return {}

    @abstractmethod
    async def pause(self) -> None:
        """Wait until no step is running. No step starts until `resume` has been called as many times as `pause`."""

    @abstractmethod
    async def resume(self) -> None:
        """Undo one `pause`."""

    async def release_memory(self) -> None:
        """Free the memory of caches until the next request. May be called while paused, before a learner needs it."""

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Pause the engine inside the `async with` block. Requests wait and continue afterwards."""
        await self.pause()
        try:
            yield
        finally:
            await self.resume()

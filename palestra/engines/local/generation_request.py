"""One `generate` call and the state of its reply."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palestra.engines.base import Finish, Sampling
from palestra.engines.client import pack_floats, pack_ids, unpack_floats, unpack_ids
from palestra.engines.stop_strings import StopStrings

if TYPE_CHECKING:
    from palestra.engines.local.prefix_cache import CacheEntry


class GenerationRequest:
    """A request for one reply.

    The reply is stored in lists (`ids`, `logprobs`) or as bytes (`reply_bytes`, `logprob_bytes`): the paged scheduler
    and clients in other processes never need Python objects for single tokens.
    """

    __slots__ = (
        "_ids", "cancelled", "entry", "error", "finish", "key", "logprob_bytes", "logprobs", "max_length", "number",
        "prefix_hashes", "prompt_bytes", "prompt_length", "reply_bytes", "sampling", "seed", "stop_ids", "stop_strings",
        "version", "waiter",
    )  # fmt: skip

    def __init__(
        self,
        prompt_bytes: bytes,
        sampling: Sampling,
        *,
        ids: list[int] | None,
        key: Hashable | None,
        max_length: int,
        stop_ids: frozenset[int],
        waiter: Any,
        number: int = -1,
        stop_strings: StopStrings | None = None,
        seed: int | None = None,
    ) -> None:
        self.prompt_bytes = prompt_bytes  # the prompt as 32-bit integers
        self.prompt_length = len(prompt_bytes) // 4
        self._ids = ids
        self.sampling = sampling
        self.key = key  # key of the conversation
        self.max_length = max_length  # maximum length of prompt and reply together
        self.stop_ids = stop_ids
        self.waiter = waiter  # used by the engine to deliver the result
        self.number = number  # used by the waiter to identify the request
        self.stop_strings = stop_strings
        self.seed = random.getrandbits(64) - 2**63 if seed is None else seed  # signed 64-bit integer
        self.logprobs: list[float] = []
        self.reply_bytes = b""  # sampled tokens as 32-bit integers
        self.logprob_bytes = b""  # their log-probabilities as 64-bit floats
        self.version: int | None = None  # version of the weights that sampled the first token
        self.entry: CacheEntry | None = None
        self.prefix_hashes: list[int] | None = None
        self.finish: Finish | None = None
        self.error: str | None = None
        self.cancelled = False

    @property
    def ids(self) -> list[int]:
        """Prompt and reply, unless the reply is stored as bytes. Newest tokens may be in the batch's buffer."""
        if self._ids is None:
            self._ids = unpack_ids(self.prompt_bytes)
        return self._ids

    def pack_reply(self) -> None:
        """Store the reply as bytes."""
        if self.logprobs:
            self.reply_bytes, self.logprob_bytes = pack_ids(self.ids[self.prompt_length :]), pack_floats(self.logprobs)
            self._ids, self.logprobs = None, []

    def unpack_reply(self) -> None:
        """Store the reply in lists."""
        if self.reply_bytes:
            self.ids.extend(unpack_ids(self.reply_bytes))
            self.logprobs = unpack_floats(self.logprob_bytes)
            self.reply_bytes = self.logprob_bytes = b""


def with_unknown_ids(requests: Sequence[GenerationRequest], vocabulary: int) -> list[GenerationRequest]:
    """Return the requests whose prompts contain ids that are not below `vocabulary`."""
    prompts = [request.prompt_bytes for request in requests]
    if not prompts or np.frombuffer(b"".join(prompts), np.uint32).max() < vocabulary:
        return []
    return [r for r in requests if np.frombuffer(r.prompt_bytes, np.uint32).max() >= vocabulary]

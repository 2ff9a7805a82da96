"""Client for an engine in another process, to which it sends requests in batches.

The process with the model answers through an `EngineChannel`. A request contains only the tokens that follow the
conversation's previous prompt and reply, which the channel remembers. Replies contain no text, because the client
decodes them.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from palestra.engines.base import Completion, Engine, Finish, Sampling
from palestra.engines.reply_text import ReplyText
from palestra.errors import BadValue, EngineFailed
from palestra.seeding import hash_seed

# Tuples are fast to pickle, and thousands of them are sent per second. Ids are packed with `pack_ids`.
# (number of the request, conversation or -1, number of known tokens, further ids, index of the sampling parameters,
# maximum number of tokens, hashed seed)
Request: TypeAlias = tuple[int, int, int, bytes, int, int, int | None]
Reply: TypeAlias = tuple[int, bytes, bytes, Finish, int]  # (number, ids, log-probabilities, finish, version)
RequestError: TypeAlias = tuple[int, bool, str]  # (number, whether the request is invalid, message)


class EngineInfo(NamedTuple):
    """The properties of an engine that its clients use."""

    tokenizer: Any
    max_context: int | None
    stop_ids: frozenset[int]  # the model's stop tokens
    version: int


class ClientBatch(NamedTuple):
    """One message from a client to the engine's channel."""

    sampling: list[Sampling]  # sampling parameters that requests refer to for the first time
    requests: list[Request]
    cancelled: list[int]  # numbers of requests
    forgotten: list[int]  # conversations that have ended


class ReplyBatch(NamedTuple):
    """One message from the engine's channel to a client."""

    replies: list[Reply]
    errors: list[RequestError]


class _Conversation:
    """A conversation with the tokens of its last prompt and reply, which the channel also stores."""

    __slots__ = ("busy", "ids", "number", "sequential")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids: list[int] = []  # empty if they are unknown
        self.busy = False
        self.sequential = True  # False after concurrent requests, which may finish in any order


class EngineClient(Engine):
    """Samples from an engine in another process. `schedule` is called when `take_batch` has data to send."""

    def __init__(self, info: EngineInfo, schedule: Callable[[], None]) -> None:
        self.tokenizer = info.tokenizer
        self.max_context = info.max_context
        self.version = info.version
        self._schedule = schedule
        self._all_stop_ids = lru_cache(maxsize=64)(info.stop_ids.union)
        self._text = ReplyText(info.tokenizer)
        self._numbers = count()
        self._futures: dict[int, asyncio.Future[Reply]] = {}
        self._conversations: dict[Hashable, _Conversation] = {}
        self._sampling: dict[Sampling, int] = {}  # indices of the sampling parameters, without length and seed
        self._batch = ClientBatch([], [], [], [])

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        prompt = list(prompt_ids)
        number = next(self._numbers)
        state = None if conversation is None else self._begin(conversation)
        known = 0 if state is None or prompt[: len(state.ids)] != state.ids else len(state.ids)
        key = -1 if state is None else state.number
        index = self._sampling_index(sampling)
        ids = pack_ids(prompt[known:])
        seed = None if sampling.seed is None else hash_seed(sampling.seed)
        self._batch.requests.append((number, key, known, ids, index, sampling.max_tokens, seed))
        self._schedule()
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._futures[number] = future
        sampled: list[int] = []
        try:
            reply = await future
            sampled = unpack_ids(reply[1])
        except asyncio.CancelledError:
            if self._futures.pop(number, None) is not None:
                self._batch.cancelled.append(number)
                self._schedule()
            raise
        finally:
            if state is not None:
                state.busy = False
                state.ids = [*prompt, *sampled] if sampled and state.sequential else []
        _, _, logprobs, finish, self.version = reply
        text, stopped = self._text.read(sampled, self._all_stop_ids(sampling.stop_ids), sampling.stop)
        return Completion(
            ids=sampled,
            logprobs=unpack_floats(logprobs),
            text=text,
            finish="stop" if stopped else finish,
            version=self.version,
            prompt_ids=prompt,
        )

    def forget(self, conversation: Hashable) -> None:
        state = self._conversations.pop(conversation, None)
        if state is not None:
            self._batch.forgotten.append(state.number)
            self._schedule()

    def take_batch(self) -> ClientBatch:
        """Return and clear the pending batch."""
        batch, self._batch = self._batch, ClientBatch([], [], [], [])
        return batch

    def receive(self, batch: ReplyBatch) -> None:
        """Wake the tasks whose replies have arrived."""
        for reply in batch.replies:
            future = self._futures.pop(reply[0], None)  # None if the request was canceled in the meantime
            if future is not None and not future.done():
                future.set_result(reply)
        for number, invalid, message in batch.errors:
            future = self._futures.pop(number, None)
            if future is not None and not future.done():
                future.set_exception(BadValue(message) if invalid else EngineFailed(message))

    def _begin(self, conversation: Hashable) -> _Conversation:
        state = self._conversations.get(conversation)
        if state is None:
            state = self._conversations[conversation] = _Conversation(next(self._numbers))
        if state.busy:
            state.sequential, state.ids = False, []
        state.busy = True
        return state

    def _sampling_index(self, sampling: Sampling) -> int:
        key = _without_length_and_seed(
            sampling.temperature,
            sampling.top_p,
            sampling.top_k,
            sampling.min_p,
            sampling.stop,
            sampling.stop_ids,
            sampling.tempered_logprobs,
        )
        index = self._sampling.get(key)
        if index is None:
            index = self._sampling[key] = len(self._sampling)
            self._batch.sampling.append(key)
        return index


@lru_cache(maxsize=64)
def _without_length_and_seed(
    temperature: float,
    top_p: float,
    top_k: int,
    min_p: float,
    stop: tuple[str, ...],
    stop_ids: tuple[int, ...],
    tempered_logprobs: bool,
) -> Sampling:
    return Sampling(
        max_tokens=1,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        stop=stop,
        stop_ids=stop_ids,
        tempered_logprobs=tempered_logprobs,
    )


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return token ids as 32-bit integers."""
    try:
        return array("I", ids).tobytes()
    except OverflowError:
        raise BadValue(f"prompt ids must not be negative, got {min(ids)}") from None


def unpack_ids(data: bytes) -> list[int]:
    ids = array("I")
    ids.frombytes(data)
    return ids.tolist()


def pack_floats(values: Sequence[float]) -> bytes:
    return array("d", values).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    values = array("d")
    values.frombytes(data)
    return values.tolist()

"""Run the requests of a client in another process on a LocalEngine, and return its replies in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from palestra.engines.base import Sampling
from palestra.engines.client import ClientBatch, EngineInfo, ReplyBatch, pack_floats, pack_ids, unpack_ids
from palestra.engines.local.engine import LocalEngine
from palestra.errors import BadValue, EngineFailed

if TYPE_CHECKING:
    from palestra.engines.local.scheduler import GenerationRequest


class EngineChannel:
    """Serves one `EngineClient`. `schedule` is called in the event loop when `take_batch` has data to send."""

    def __init__(self, engine: LocalEngine, schedule: Callable[[], None]) -> None:
        self._engine = engine
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._sampling: list[Sampling] = []
        self._running: dict[int, GenerationRequest] = {}
        # Tokens of each conversation's last prompt and reply, as a list and as 32-bit integers.
        self._conversations: dict[int, tuple[list[int], bytes]] = {}
        self._batch = ReplyBatch([], [])

    @property
    def info(self) -> EngineInfo:
        """The properties of the engine that clients use."""
        engine = self._engine
        return EngineInfo(engine.tokenizer, engine.max_context, engine.stop_ids, engine.version)

    def receive(self, batch: ClientBatch) -> None:
        """Start the requests in a batch together, so that one step of the engine serves all of them."""
        self._sampling += batch.sampling
        requests = []
        for number, conversation, known, ids, index, max_tokens, seed in batch.requests:
            prompt = unpack_ids(ids)
            if known:
                previous, previous_bytes = self._conversations[conversation]
                prompt, ids = previous + prompt, previous_bytes + ids  # `known` is the length of `previous`
            try:
                request = self._engine.make_request(
                    prompt,
                    self._sampling[index],
                    key=None if conversation < 0 else (self, conversation),
                    waiter=_ClientWaiter(self, self._loop, number, conversation),
                    max_tokens=max_tokens,
                    seed=seed,
                    prompt_bytes=ids,
                )
            except BadValue as err:
                self._fail(number, err)
                continue
            self._running[number] = request
            requests.append(request)
        if requests:
            self._submit(requests)
        for number in batch.cancelled:
            if number in self._running:
                self._engine.cancel(self._running.pop(number))
        for conversation in batch.forgotten:
            self._conversations.pop(conversation, None)
            self._engine.forget((self, conversation))

    def _submit(self, requests: list[GenerationRequest]) -> None:
        try:
            self._engine.submit(requests)
        except EngineFailed as err:
            for number in list(self._running):
                del self._running[number]
                self._fail(number, err)

    def _fail(self, number: int, error: BadValue | EngineFailed) -> None:
        self._batch.errors.append((number, isinstance(error, BadValue), str(error)))
        self._schedule()

    def take_batch(self) -> ReplyBatch:
        """Return and clear the pending batch."""
        batch, self._batch = self._batch, ReplyBatch([], [])
        return batch

    def close(self) -> None:
        """Cancel the requests of a client that no longer exists."""
        for request in self._running.values():
            self._engine.cancel(request)
        self._running.clear()
        for conversation in self._conversations:
            self._engine.forget((self, conversation))
        self._conversations.clear()

    def finish(self, request: GenerationRequest, number: int, conversation: int) -> None:
        if self._running.pop(number, None) is None:  # cancelled
            return
        error = self._engine.error_of(request)
        if error is not None:
            self._fail(number, error)
            return
        ids = pack_ids(request.ids[request.prompt_length :])
        if conversation >= 0:
            self._conversations[conversation] = request.ids, request.prompt_bytes + ids
        assert request.finish is not None  # noqa: S101  there is no error
        assert request.version is not None  # noqa: S101
        self._batch.replies.append((number, ids, pack_floats(request.logprobs), request.finish, request.version))
        self._schedule()


class _ClientWaiter:
    """Waits for one of the client's requests."""

    __slots__ = ("_channel", "_conversation", "_number", "loop")
    remote = True

    def __init__(self, channel: EngineChannel, loop: asyncio.AbstractEventLoop, number: int, conversation: int) -> None:
        self.loop = loop
        self._channel = channel
        self._number = number
        self._conversation = conversation

    def on_finished(self, request: GenerationRequest) -> None:
        self._channel.finish(request, self._number, self._conversation)

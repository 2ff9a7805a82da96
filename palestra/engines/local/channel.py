"""Run the requests of a client in another process on a LocalEngine, and return its replies in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from palestra.engines.base import Sampling
from palestra.engines.client import ClientBatch, EngineInfo, ReplyBatch
from palestra.engines.local.engine import LocalEngine
from palestra.errors import BadValue, EngineFailed

if TYPE_CHECKING:
    from palestra.engines.local.generation_request import GenerationRequest


class EngineChannel:
    """Serves one `EngineClient`. `schedule` is called in the event loop when `take_batch` has data to send.

    It is also the waiter for all requests from this client.
    """

    remote = True

    def __init__(self, engine: LocalEngine, schedule: Callable[[], None]) -> None:
        self._engine = engine
        self._schedule = schedule
        self.loop = asyncio.get_running_loop()
        self._sampling: list[Sampling] = []
        self._running: dict[int, tuple[GenerationRequest, int]] = {}  # requests and their conversations by number
        self._conversations: dict[int, bytes] = {}  # each conversation's last prompt and reply as 32-bit integers
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
            try:
                request = self._engine.make_request(
                    self._conversations[conversation] + ids if known else ids,  # `known` is the conversation's length
                    self._sampling[index],
                    key=None if conversation < 0 else (self, conversation),
                    waiter=self,
                    max_tokens=max_tokens,
                    seed=seed,
                    number=number,
                )
            except BadValue as err:
                self._fail(number, err)
                continue
            self._running[number] = request, conversation
            requests.append(request)
        if requests:
            self._submit(requests)
        for number in batch.cancelled:
            if number in self._running:
                self._engine.cancel(self._running.pop(number)[0])
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
        for request, _ in self._running.values():
            self._engine.cancel(request)
        self._running.clear()
        for conversation in self._conversations:
            self._engine.forget((self, conversation))
        self._conversations.clear()

    def on_finished(self, request: GenerationRequest) -> None:
        """Add a reply to the batch."""
        number = request.number
        entry = self._running.pop(number, None)
        if entry is None:  # cancelled
            return
        error = self._engine.error_of(request)
        if error is not None:
            self._fail(number, error)
            return
        request.pack_reply()
        if entry[1] >= 0:
            self._conversations[entry[1]] = request.prompt_bytes + request.reply_bytes
        assert request.finish is not None  # noqa: S101  there is no error
        assert request.version is not None  # noqa: S101
        reply = number, request.reply_bytes, request.logprob_bytes, request.finish, request.version
        self._batch.replies.append(reply)
        self._schedule()

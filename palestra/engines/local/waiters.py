"""Pass finished requests from the engine's worker thread to the event loops that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from palestra.engines.local.generation_request import GenerationRequest


class Waiter(Protocol):
    """Receives one request when it has finished."""

    loop: asyncio.AbstractEventLoop
    remote: bool  # whether the conversation runs in another process instead of the event loop

    def on_finished(self, request: GenerationRequest) -> None:
        """Receive the request. Called in the event loop."""


class FutureWaiter:
    """Sets the result of a future."""

    __slots__ = ("_future", "loop")
    remote = False

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self.loop = loop
        self._future = future

    def on_finished(self, request: GenerationRequest) -> None:
        del request
        resolve(self._future)


def notify(requests: Iterable[GenerationRequest]) -> None:
    """Pass requests to their waiters. Runs in the event loop."""
    for request in requests:
        request.waiter.on_finished(request)


def resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    """Call a function in an event loop, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():  # a closed loop has no waiting tasks
            raise

"""Wait for the replies to commands, either blocking the thread or in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from palestra.errors import EnvFailed
from palestra.vector.state import VectorState
from palestra.workers.types import CALL, Command, EnvResult


class AsyncBridge(VectorState):
    """Base class of VectorEnv that sends commands and waits for their results, in sync and async code."""

    _task: asyncio.Task[None] | None = None  # task that receives all replies while any command is in flight

    def call(self, name: str, *args: Any, indices: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """Call a method or read an attribute of each env, and return the values.

        `name` may contain dots (`a.b`). Raises EnvFailed if one of the envs raises an exception.
        """
        selected = self._selected(indices)
        results = self._exchange([(index, CALL, (name, args, kwargs)) for index in selected])
        for result in results:
            if result.failure is not None:
                raise result.failure.error()
        return [result.observation for result in results]

    def _exchange(self, commands: list[Command]) -> list[EnvResult]:
        """Submit commands and wait for their replies. Other replies that arrive in the meantime are left for `recv`."""
        self._admit(commands)
        results = self._claim(commands)
        self._submit(commands, whole=True)
        while len(results) < len(commands):
            self._collect(None)
        self._check()
        return [results[index] for index, _, _ in commands]

    def _collect(self, timeout: float | None) -> None:
        self._check()
        try:
            replies = self._backend.collect(timeout)
        except KeyboardInterrupt:
            self.close()  # a message may have been read only partially, so that later messages could not be decoded
            raise
        except EnvFailed as err:
            self._error = err
            raise
        self._receive(replies)

    async def _aexchange(self, commands: list[Command]) -> list[EnvResult]:
        """Like `_exchange`, but without blocking the event loop. If canceled, the replies are left for `recv`."""
        self._admit(commands)
        results = self._claim(commands)
        self._submit(commands, whole=True)
        try:
            while len(results) < len(commands):
                await self._wait_for_replies()
            self._check()
        except BaseException:
            self._unclaim(commands, results)
            raise
        return [results[index] for index, _, _ in commands]

    async def _request(self, command: Command) -> EnvResult:
        """Submit one command and wait for its reply, which is dropped if the caller is canceled.

        All commands from the same event loop iteration are submitted together.
        """
        loop = asyncio.get_running_loop()
        index = command[0]
        while index in self._in_flight:  # a canceled caller left a command in flight
            await self._wait_for_replies()
        self._admit([command])
        response: asyncio.Future[EnvResult] = loop.create_future()
        self._claims[index] = lambda _, result: None if response.done() else response.set_result(result)
        if not self._outbox:
            loop.call_soon(self._submit_outbox)
        self._outbox.append(command)
        self._responses.add(response)
        try:
            return await response
        finally:
            self._responses.discard(response)

    def _submit_outbox(self) -> None:
        outbox, self._outbox = self._outbox, []
        if self._error is None:
            self._submit(outbox)
            self._start_receiver()

    async def _wait_for_replies(self) -> None:
        self._check()
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        self._start_receiver()
        await sleeper

    def _start_receiver(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._receive_all())

    async def _receive_all(self) -> None:
        """Receive replies as long as commands are in flight."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        stop = self._backend.watch(loop, event.set)
        try:
            while (self._in_flight or self._sleepers) and self._error is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._backend.tick):
                        await event.wait()
                event.clear()
                if self._error is None:
                    self._receive(self._backend.collect(0.0))
                self._wake()
                await asyncio.sleep(0)
        except EnvFailed as err:
            self._error = err
        finally:
            stop()
            self._wake()

    async def _stop_receiver(self) -> None:
        """Fail all waiters and stop receiving replies, because a closing backend must not replace its workers."""
        self._error = self._error or EnvFailed("this VectorEnv is closed; create a new one with palestra.make_vec")
        task = self._task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._wake()

    def _wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        if self._error is not None:
            for response in self._responses:
                if not response.done():
                    response.set_exception(self._error)

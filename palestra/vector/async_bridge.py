"""AsyncBridge: replies in an event loop. One task a loop takes them in for everybody who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from palestra.errors import EnvFailed
from palestra.vector.state import VectorState
from palestra.workers.types import CALL, Command, EnvResult


class AsyncBridge(VectorState):
    """The side of a VectorEnv that waits without blocking."""

    _task: asyncio.Task[None] | None = None  # runs while anything is under way

    def call(self, name: str, *args: Any, indices: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """What a method of each env returns, or an attribute (`a.b` too). Raises EnvFailed where one raises."""
        chosen = self._chosen(indices)
        items = self._exchange([(index, CALL, (name, args, kwargs)) for index in chosen])
        for item in items:
            if item.failure is not None:
                raise item.failure.error()
        return [item.observation for item in items]

    def _exchange(self, commands: list[Command]) -> list[EnvResult]:
        """Hand over commands and wait for their replies; others that arrive are kept for `recv`."""
        self._admit(commands)
        got = self._claim(commands)
        self._submit(commands, whole=True)
        while len(got) < len(commands):
            self._collect(None)
        self._check()
        return [got[index] for index, _, _ in commands]

    def _collect(self, timeout: float | None) -> None:
        self._check()
        try:
            replies = self._pool.collect(timeout)
        except KeyboardInterrupt:
            self.close()  # half a message may have been read: nothing after it could be trusted
            raise
        except EnvFailed as err:
            self._given_up = err
            raise
        self._absorb(replies)

    async def _aexchange(self, commands: list[Command]) -> list[EnvResult]:
        """Hand over commands and wait for their replies; cancelled, it leaves them to `recv`."""
        self._admit(commands)
        got = self._claim(commands)
        self._submit(commands, whole=True)
        try:
            while len(got) < len(commands):
                await self._news()
            self._check()
        except BaseException:
            self._unclaim(commands, got)
            raise
        return [got[index] for index, _, _ in commands]

    async def _ask(self, command: Command) -> EnvResult:
        """One command and its reply, which is dropped when cancelled. What is asked in one turn travels together."""
        loop = asyncio.get_running_loop()
        index = command[0]
        while index in self._flying:  # one that was cancelled is still under way
            await self._news()
        self._admit([command])
        answer: asyncio.Future[EnvResult] = loop.create_future()
        self._claims[index] = lambda _, ready: None if answer.done() else answer.set_result(ready)
        if not self._outbox:
            loop.call_soon(self._post)
        self._outbox.append(command)
        self._answers.add(answer)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def _post(self) -> None:
        outbox, self._outbox = self._outbox, []
        if self._given_up is None:
            self._submit(outbox)
            self._start_pump()

    async def _news(self) -> None:
        """Until replies have come in."""
        self._check()
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        self._start_pump()
        await sleeper

    def _start_pump(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._pump())

    async def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        stop = self._pool.watch(loop, event.set)
        try:
            while (self._flying or self._sleepers) and self._given_up is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pool.tick):
                        await event.wait()
                event.clear()
                if self._given_up is None:
                    self._absorb(self._pool.collect(0.0))
                self._wake()
                await asyncio.sleep(0)
        except EnvFailed as err:
            self._given_up = err
        finally:
            stop()
            self._wake()

    def _wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        if self._given_up is not None:
            for answer in self._answers:
                if not answer.done():
                    answer.set_exception(self._given_up)

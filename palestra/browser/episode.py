"""An episode in a browser that can be copied, moved to another process, and rebuilt after the browser has crashed.

An `Episode` stores its start and all commands so far, from which the same page can be rebuilt: pages have their own
clock and their own random numbers (scripts/clock.js), so the same commands lead to the same page.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from palestra.browser.actions import BadAction, Command
from palestra.browser.connection import BrowserLost, ProtocolError
from palestra.browser.context import Context
from palestra.browser.observation import PageState, View, observe
from palestra.browser.perform import perform
from palestra.browser.pool import pool
from palestra.browser.sites import Site
from palestra.browser.tab import ScriptError
from palestra.errors import EnvFailed

ATTEMPTS = 3  # maximum number of attempts per step; the page is rebuilt before another attempt


class Start(Protocol):
    """Start of an episode: the sites and the first page. Must be picklable."""

    @property
    def label(self) -> Hashable | None:
        """Contexts that were released with this label are preferred; None always uses a new context."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the viewport in pixels."""

    def sites(self) -> Mapping[str, Site]:
        """Return the sites that the page may request, by host name."""

    def open(self, context: Context) -> None:
        """Load the first page of the episode."""


class Episode:
    """One episode. Its context is acquired, or rebuilt, when it is used."""

    state: PageState  # the last observation

    def __init__(self, start: Start, view: View, *, milliseconds: float, extra: str = "null") -> None:
        self.start = start
        self.view = view
        self.milliseconds = milliseconds  # time by which the page's clock advances per command
        self.extra = extra
        self.commands: list[Command] = []
        self._lock = threading.RLock()
        self._context: Context | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self.state = self._recovering(lambda context: observe_start(self, context))

    def __deepcopy__(self, memo: dict[int, Any]) -> Episode:
        return restore(self._data())

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (self._data(),)

    def _data(self) -> dict[str, Any]:
        names = ("start", "view", "milliseconds", "extra", "state")
        return {"commands": list(self.commands), **{name: getattr(self, name) for name in names}}

    def perform(self, command: Command) -> PageState:
        """Carry out a command and return the resulting page; raise BadAction if the command is not possible."""
        with self._lock:
            problem: list[BadAction] = []

            def work(context: Context) -> PageState:
                try:
                    perform(context, command)
                except BadAction as err:
                    problem[:] = [err]
                return self._observe(context)

            self.state = self._recovering(work)
            self.commands.append(command)
            if problem:
                raise problem[0]
            return self.state

    def release(self) -> None:
        """Return the context to the pool. The page is rebuilt if the episode is used again."""
        with self._lock:
            context = self._detach()
            if context is None:
                return
            try:
                context.keep_first_tab()
            except (BrowserLost, ProtocolError):
                context.close()
            pool.release(context, self.start.label)

    def evaluate(self, script: str) -> Any:
        """Evaluate a script in the current page; it must not change the page."""
        with self._lock:
            return self._recovering(lambda context: context.tab.evaluate(script))

    def context(self) -> Context:
        """Return the context, for queries that do not change it."""
        with self._lock:
            return self._recovering(lambda context: context)  # type: ignore[no-any-return]

    def _observe(self, context: Context) -> PageState:
        state = observe(context, self.view, milliseconds=self.milliseconds, extra=self.extra)
        failure = next((tab.failure for tab in context.tabs if tab.failure), None)
        if failure is not None:
            raise EnvFailed(f"one of the environment's sites does not respond: {failure}")
        return state

    def _recovering(self, work: Any) -> Any:
        """Return `work(context)`. If the browser or the page is lost, rebuild the page and try again."""
        errors: list[str] = []
        for _ in range(ATTEMPTS):
            try:
                return work(self._built())
            except (BrowserLost, ProtocolError, ScriptError) as err:
                errors.append(str(err))
                self._discard()
                pool.check()
        raise EnvFailed(f"the page was lost {ATTEMPTS} times in the same step: {'; '.join(dict.fromkeys(errors))}")

    def _built(self) -> Context:
        context = self._context
        if context is not None and context.usable:
            return context
        self._discard()
        width, height = self.start.size
        context = pool.acquire(self.start.label, self.start.sites(), width=width, height=height)
        self._context = context
        self._finalizer = weakref.finalize(self, pool.trash.append, context)
        self._finalizer.atexit = False
        context.first, context.clipboard = None, ""
        self.start.open(context)
        observe_start(self, context)
        for command in self.commands:
            with suppress(BadAction):  # the command was also impossible the first time
                perform(context, command)
            self._observe(context)
        return context

    def _detach(self) -> Context | None:
        context, self._context = self._context, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return context

    def _discard(self) -> None:
        context = self._detach()
        if context is not None:
            context.close()


def observe_start(episode: Episode, context: Context) -> PageState:
    """Observe the first page once per context, because every observation advances the page's clock."""
    if context.first is None:
        context.first = episode._observe(context)
    return context.first


def restore(data: dict[str, Any]) -> Episode:
    """Return an episode with the given start and commands; its page is built when it is used."""
    episode = Episode.__new__(Episode)
    episode.__dict__.update(data)
    episode._lock = threading.RLock()
    episode._context = None
    episode._finalizer = None
    return episode

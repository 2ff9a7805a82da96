"""Share one browser between all environments in this process, and keep idle contexts for reuse."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Hashable, Mapping
from contextlib import suppress
from weakref import WeakSet

from palestra.browser.connection import BrowserLost, Connection, ProtocolError
from palestra.browser.context import Context
from palestra.browser.process import BrowserProcess
from palestra.browser.sites import Site
from palestra.errors import EnvFailed

START_SECONDS = 60.0
# Attach to every new tab, and make it wait until its scripts and interception are set up.
ATTACH = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True, "filter": [{"type": "page"}]}
MIN_IDLE = 6  # number of idle contexts that are kept for later episodes, or more if more were in use at the same time
MAX_IDLE = 24  # maximum number of idle contexts; a context uses about 20 MB
_log = logging.getLogger(__name__)


class Browser:
    """A running browser process and its DevTools connection."""

    def __init__(self, *, sandboxed: bool) -> None:
        self.process = BrowserProcess(sandboxed=sandboxed)
        self.connection = Connection(self.process.read_end, lambda: self.process.write_end)
        try:
            self.version = str(self.connection.call("Browser.getVersion", timeout=START_SECONDS)["product"])
            self.connection.call("Target.setAutoAttach", ATTACH)
        except (BrowserLost, ProtocolError) as err:
            self.kill()
            raise BrowserLost(f"the browser did not start: {err}") from err

    @property
    def alive(self) -> bool:
        return self.connection.lost is None and self.process.alive

    def kill(self) -> int | None:
        code = self.process.kill()
        if threading.current_thread() is not self.connection.thread:
            self.connection.thread.join(5.0)
        return code


class BrowserPool:
    """The browser of this process. It is started by the first environment that needs it, and replaced if it exits."""

    def __init__(self) -> None:
        self.browser: Browser | None = None
        self.started = 0  # number of browsers started so far
        self.trash: deque[Context] = deque()  # contexts of envs that were garbage-collected without `close`
        self._idle: list[Context] = []  # least recently used first
        self._in_use: WeakSet[Context] = WeakSet()  # acquired and not released yet
        self._keep = MIN_IDLE  # number of idle contexts to keep: as many as were in use at the same time
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self.sandboxed = True  # False after the browser's own sandbox was found not to work here

    def get(self) -> Browser:
        """Return the running browser, or start one."""
        with self._starting:
            if self.browser is not None and not self.browser.alive:
                _log.warning("the browser ended (exit status %s); starting a new one", self.browser.kill())
                self.browser = None
            if self.browser is None:
                with self._lock:
                    self._idle.clear()
                    self._keep = MIN_IDLE
                self.browser = self._start()
                self.started += 1
            return self.browser

    def _start(self) -> Browser:
        try:
            return Browser(sandboxed=self.sandboxed)
        except BrowserLost as err:
            if not self.sandboxed:
                raise EnvFailed(str(err)) from err
            _log.warning("the browser did not start with its sandbox (%s); starting it without", err)
        try:
            browser = Browser(sandboxed=False)
        except BrowserLost as err:
            raise EnvFailed(f"{err}. Run `palestra doctor` to check the installation") from err
        self.sandboxed = False
        return browser

    def acquire(self, label: Hashable | None, sites: Mapping[str, Site], *, width: int, height: int) -> Context:
        """Return an idle context, preferably one that was released with the same label, or a new one.

        Without a label, the context is always new, with no cookies and no history.
        """
        browser = self.get()
        while self.trash:
            self.trash.popleft().close()
        context = None if label is None else self._take(label)
        if context is None:
            context = Context(browser.connection, sites, width=width, height=height)
        else:
            context.sites.clear()
            context.sites.update(sites)
            context.set_size(width, height)
        if context.label != label:
            context.label = None
        with self._lock:
            self._in_use.add(context)
            self._keep = min(max(self._keep, len(self._in_use)), MAX_IDLE)
        return context

    def _take(self, label: Hashable) -> Context | None:
        with self._lock:
            self._idle = [context for context in self._idle if context.usable]
            matching = [context for context in self._idle if context.label == label]
            if not matching and len(self._idle) < self._keep:
                return None  # a new context can be kept in addition to the idle ones
            context = matching[-1] if matching else self._idle[0] if self._idle else None
            if context is not None:
                self._idle.remove(context)
            return context

    def release(self, context: Context, label: Hashable | None) -> None:
        """Keep a context for the next `acquire`, or close it if it has no label or enough contexts are idle."""
        context.label = label
        context.run_closers()
        with self._lock:
            self._in_use.discard(context)
            if context.usable and label is not None:
                self._idle.append(context)
            evicted = self._idle.pop(0) if len(self._idle) > self._keep else None
        if evicted is not None:
            evicted.close()
        elif not context.usable or label is None:
            context.close()

    def check(self) -> None:
        """End the browser if it no longer responds, so that the next call starts another one."""
        browser = self.browser
        if browser is None or not browser.alive:
            return
        with suppress(ProtocolError):
            try:
                browser.connection.call("Browser.getVersion", timeout=10.0)
            except BrowserLost:
                browser.kill()

    def close(self) -> None:
        """End the browser. The next episode starts another one."""
        with self._lock:
            self._idle.clear()
        with self._starting:
            browser, self.browser = self.browser, None
        if browser is not None:
            browser.kill()

    def disown(self) -> None:
        """Release the parent's browser and locks in a forked child process."""
        if self.browser is not None:
            self.browser.process.disown()
            self.browser.connection.lost = "the browser belongs to the parent process"
        self.__init__()  # type: ignore[misc]


pool = BrowserPool()
atexit.register(pool.close)
os.register_at_fork(after_in_child=pool.disown)

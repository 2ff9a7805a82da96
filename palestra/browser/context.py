"""A browser context: the tabs of one environment, isolated from all other environments in the same browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from palestra.browser.connection import BrowserLost, Call, Connection, ProtocolError
from palestra.browser.sites import Site
from palestra.browser.tab import CALL_SECONDS, MOUSE, Tab
from palestra.errors import EnvFailed

if TYPE_CHECKING:
    from palestra.browser.observation import PageState

MAX_TABS = 20
SETUP_SECONDS = 30.0
SCRIPTS = Path(__file__).with_name("scripts")


@cache
def init_script() -> str:
    """Return the scripts that run before those of every page."""
    return "\n".join((SCRIPTS / name).read_text(encoding="utf-8") for name in ("clock.js", "observe.js"))


class NewTab(NamedTuple):
    """A tab that was opened, and the calls that set it up."""

    tab: Tab
    is_page: bool
    calls: Sequence[Call]


class Context:
    """Tabs that share cookies and storage. `sites` maps host names to the sites that answer their requests."""

    def __init__(
        self, connection: Connection, sites: Mapping[str, Site] | None = None, *, width: int = 1280, height: int = 720
    ) -> None:
        self.connection = connection
        self.sites: dict[str, Site] = dict(sites or {})
        self.width, self.height = width, height
        self.tabs: list[Tab] = []
        self.current = 0
        self.label: object = None  # identifies the loaded page, so that a later episode with this page can reuse it
        self.closed = False
        self.clipboard = ""
        self.turns = 0  # number of observations
        self.closers: list[Callable[[], None]] = []  # functions that release the episode's resources
        self.data_folder: Path | None = None  # data of the application that runs for this episode
        self.first: PageState | None = None  # the first observation of the current episode
        self._arrived = threading.Condition()
        self._new: list[NewTab] = []  # tabs that were opened and are not in `tabs` yet
        created = connection.call("Target.createBrowserContext", {"disposeOnDetach": True}, timeout=SETUP_SECONDS)
        self.context_id: str = created["browserContextId"]
        connection.contexts[self.context_id] = self.tab_opened
        self.open_tab()

    @property
    def tab(self) -> Tab:
        return self.tabs[self.current]

    def open_tab(self) -> Tab:
        """Open an empty tab and select it."""
        params: dict[str, Any] = {"url": "about:blank", "browserContextId": self.context_id, "background": False}
        if not self.tabs:  # the first tab opens a window, and only windows have a size
            params |= {"width": self.width, "height": self.height}
        target = self.connection.call("Target.createTarget", params, timeout=SETUP_SECONDS)["targetId"]
        with self._arrived:  # the browser attaches to every new tab
            if not self._arrived.wait_for(lambda: any(new.tab.target == target for new in self._new), SETUP_SECONDS):
                raise BrowserLost("a new tab did not respond")
            opened = next(new for new in self._new if new.tab.target == target)
            self._new.remove(opened)
        return self._add(opened)

    def _add(self, opened: NewTab) -> Tab:
        for call in opened.calls:
            opened.tab.wait(call)
        self.tabs.append(opened.tab)
        self.current = len(self.tabs) - 1
        return opened.tab

    def _setup_calls(self) -> Sequence[tuple[str, dict[str, Any]]]:
        metrics = {"width": self.width, "height": self.height, "deviceScaleFactor": 1, "mobile": False}
        return (
            ("Page.enable", {}),
            ("Inspector.enable", {}),
            ("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}),
            ("Page.addScriptToEvaluateOnNewDocument", {"source": init_script(), "runImmediately": True}),
            ("Emulation.setDeviceMetricsOverride", metrics),
            ("Emulation.setFocusEmulationEnabled", {"enabled": True}),
            ("Emulation.setTimezoneOverride", {"timezoneId": "UTC"}),
            ("Runtime.runIfWaitingForDebugger", {}),
        )

    def tab_opened(self, params: dict[str, Any]) -> None:
        """Start to set up a new tab, without waiting, because this runs in the thread that reads events.

        A tab that a page has opened waits for `runIfWaitingForDebugger`, and blocks the page that has opened it if both
        are in the same process, so the mouse or keyboard event that opened the tab would not return before.
        """
        info = params["targetInfo"]
        tab = Tab(self.connection, params["sessionId"], info["targetId"], self.sites)
        with suppress(BrowserLost):  # the next call in this context raises it
            calls = self.connection.send_all(self._setup_calls(), tab.session)
            with self._arrived:
                self._new.append(NewTab(tab, info.get("type") == "page", calls))
                self._arrived.notify_all()

    def adopt_new_tabs(self) -> None:
        """Set up the tabs that pages have opened since the last call, and select the last one."""
        while True:
            with self._arrived:
                if not self._new:
                    return
                opened = self._new.pop(0)
            if not opened.is_page or len(self.tabs) >= MAX_TABS:
                self._forget(opened.tab)
                with suppress(ProtocolError):
                    target = {"targetId": opened.tab.target}
                    self.connection.call("Target.closeTarget", target, timeout=CALL_SECONDS)
                continue
            self._add(opened).wait_for_load()

    def expect_tab(self, seconds: float) -> None:
        """Wait for a tab that the page has announced."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._new), seconds)

    @property
    def has_new_tabs(self) -> bool:
        return bool(self._new)

    def select_tab(self, index: int) -> None:
        self.current = index

    def close_tab(self) -> None:
        """Close the current tab and select the one before it; the last tab is replaced by an empty one."""
        tab = self.tabs.pop(self.current)
        self._forget(tab)
        with suppress(ProtocolError):
            self.connection.call("Target.closeTarget", {"targetId": tab.target}, timeout=CALL_SECONDS)
        if self.tabs:
            self.current = max(0, self.current - 1)
        else:
            self.open_tab()

    def keep_first_tab(self) -> None:
        """Close all tabs but the first."""
        while len(self.tabs) > 1:
            self.current = len(self.tabs) - 1
            self.close_tab()
        self.current = 0

    def start_again(self, url: str) -> None:
        """Load a page as in a new context, with no cookies, no history, and the mouse in the lower right corner."""
        tab = self.tab
        self.connection.call("Storage.clearCookies", {"browserContextId": self.context_id}, timeout=CALL_SECONDS)
        tab.failure = None
        error = tab.navigate(url)
        if error is not None:
            raise EnvFailed(f"{url} did not load: {error}")
        tab.messages.clear()
        tab.call_all([(MOUSE, {"type": "mouseMoved", "x": self.width - 1, "y": self.height - 1})])
        tab.call("Page.resetNavigationHistory")

    def set_size(self, width: int, height: int) -> None:
        """Set the size of the viewport in pixels."""
        if (width, height) != (self.width, self.height):
            self.width, self.height = width, height
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            for tab in self.tabs:
                tab.call("Emulation.setDeviceMetricsOverride", metrics)

    def run_closers(self) -> None:
        """Release the episode's resources, such as an application that was started for it."""
        while self.closers:
            self.closers.pop()()

    def _forget(self, tab: Tab) -> None:
        self.connection.forget(tab.session)

    def close(self) -> None:
        """Close all tabs. A browser that has already exited needs no cleanup."""
        if self.closed:
            return
        self.closed = True
        self.run_closers()
        self.connection.contexts.pop(self.context_id, None)
        for tab in self.tabs:
            self._forget(tab)
        with suppress(BrowserLost, ProtocolError):
            self.connection.send("Target.disposeBrowserContext", {"browserContextId": self.context_id})

    @property
    def usable(self) -> bool:
        return not self.closed and self.connection.lost is None and all(tab.crashed is None for tab in self.tabs)


def quoted(value: object) -> str:
    """Return a value as JavaScript source."""
    return json.dumps(value)

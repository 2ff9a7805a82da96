"""One tab of a browser context: navigation, evaluation of scripts, input, and waiting for the page to become idle."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palestra.browser.connection import BrowserLost, Call, Connection, ProtocolError
from palestra.browser.sites import Request, Response, Site, SiteFailed

CALL_SECONDS = 15.0  # a call that takes longer means that the page or the browser hangs
MAX_MESSAGES = 10
MOUSE = "Input.dispatchMouseEvent"
LOAD_SECONDS = 15.0  # maximum time for a page to load
_STALE = ("navigated or closed", "Cannot find context", "context with specified id", "Execution context was destroyed")


class ScriptError(Exception):
    """Raised if a script that was evaluated in the page throws an exception."""


class Tab:
    """A tab, and the requests of its page that are in progress."""

    def __init__(
        self,
        connection: Connection,
        session: str,
        target: str,
        sites: Mapping[str, Site],
    ) -> None:
        self.connection = connection
        self.session = session
        self.target = target
        self.sites = sites
        self.url = "about:blank"
        self.crashed: str | None = None
        self.messages: list[str] = []  # dialogs and links to other sites since the last observation
        self.failure: str | None = None  # why a site did not answer
        self.pages = 0  # number of pages that were shown so far
        self.mouse: tuple[float, float] = (-1, -1)  # position in the viewport
        self.pressed = 0  # buttons of the mouse that are down, as in `MouseEvent.buttons`
        self._changed = threading.Condition()
        self._requests: set[str] = set()  # intercepted and not answered yet
        self._loading = False
        self._refused = False  # whether a navigation that the page started was aborted and not expected yet
        self._frame = target  # the main frame has the id of its target
        connection.listen(session, self._event)

    # Calls

    def send(self, method: str, params: dict[str, Any] | None = None) -> Call:
        return self.connection.send(method, params, self.session)

    def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float = CALL_SECONDS
    ) -> dict[str, Any]:
        return self.wait(self.send(method, params), timeout)

    def call_all(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Send several calls at once and wait for all of them."""
        for method, params in calls:
            if method == MOUSE:
                self.mouse, self.pressed = (params["x"], params["y"]), params.get("buttons", 0)
        for call in self.connection.send_all(calls, self.session):
            self.wait(call)

    def wait(self, call: Call, timeout: float = CALL_SECONDS) -> dict[str, Any]:
        if self.crashed is not None:
            raise BrowserLost(self.crashed)
        return self.connection.wait(call, timeout)

    def evaluate(self, script: str, *, gesture: bool = False) -> Any:
        """Evaluate a script in the page and return its value, after its promise has been resolved."""
        params = {"expression": script, "returnByValue": True, "awaitPromise": True, "userGesture": gesture}
        reply = self.call("Runtime.evaluate", params)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details.get("text", "")
            raise ScriptError(text[:500])
        return reply["result"].get("value")

    def renew_hover(self) -> None:
        """Let the browser find the elements below the mouse again; it does this late after a page has changed."""
        x, y = self.mouse
        button = "left" if self.pressed else "none"
        self.call(MOUSE, {"type": "mouseMoved", "x": x, "y": y, "button": button, "buttons": self.pressed})

    # Navigation

    def navigate(self, url: str) -> str | None:
        """Load a URL; return the browser's error text, such as net::ERR_FAILED, or None."""
        with self._changed:
            self._loading = True
        reply = self.call("Page.navigate", {"url": url})
        if "loaderId" not in reply or reply.get("errorText"):  # an anchor on the same page, a download, or an error
            with self._changed:
                self._loading = False
        error: str | None = reply.get("errorText")
        if error is None or error == "net::ERR_ABORTED":
            self.wait_for_load()
        return error

    def wait_for_load(self, seconds: float = LOAD_SECONDS) -> bool:
        """Wait until no navigation and no request is in progress; return False if this takes too long."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.crashed is not None or (not self._loading and not self._requests), seconds
            )
        if self.crashed is not None:
            raise BrowserLost(self.crashed)
        return done

    def expect_navigation(self, seconds: float, pages: int) -> None:
        """Wait until the navigation that a page announced has finished or was aborted.

        `pages` is the number of pages before the announcement: with more pages, the navigation has already begun.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._loading or self._refused or self.pages != pages or self.crashed is not None, seconds
            )
        self.wait_for_load()
        self._refused = False

    @property
    def busy(self) -> bool:
        return self._loading or bool(self._requests)

    def retrying(self, work: Callable[[], Any]) -> Any:
        """Call `work` again after the page that it was reading has been replaced by another one."""
        for _ in range(5):
            try:
                return work()
            except ProtocolError as err:
                if not any(part in str(err) for part in _STALE):
                    raise
                self.wait_for_load()
        return work()

    def screenshot(self, clip: Mapping[str, float] | None = None) -> bytes:
        """Return the visible part of the page, or a part of it, as a PNG image."""
        params: dict[str, Any] = {"format": "png", "captureBeyondViewport": False}
        if clip is not None:
            params["clip"] = {**clip, "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", params)["data"])

    # Events, which arrive in the reading thread

    def _event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Fetch.requestPaused":
            self._intercept(params)
        elif method == "Page.frameStartedNavigating":
            if params["frameId"] == self._frame and params.get("navigationType") != "sameDocument":
                self._set_loading(True)
        elif method == "Page.frameStartedLoading":
            if params["frameId"] == self._frame:
                self._set_loading(True)
        elif method == "Page.frameStoppedLoading":
            if params["frameId"] == self._frame:
                self._set_loading(False)
        elif method == "Page.frameNavigated":
            if "parentId" not in params["frame"]:
                with self._changed:
                    self.pages += 1
                    self._refused = False
                    self._changed.notify_all()
                self.url = params["frame"]["url"] + params["frame"].get("urlFragment", "")
        elif method == "Page.navigatedWithinDocument":
            if params["frameId"] == self._frame:
                self.url = params["url"]
        elif method == "Page.javascriptDialogOpening":
            if len(self.messages) < MAX_MESSAGES:
                self.messages.append(f"A dialog was shown: {params['message'][:1000]}")
            accept = {"accept": params["type"] != "prompt"}
            self.connection.send("Page.handleJavaScriptDialog", accept, self.session)
        elif method in ("Inspector.targetCrashed", "palestra.lost"):
            self._crash(params.get("reason", "the page crashed"))

    def _set_loading(self, value: bool) -> None:
        with self._changed:
            self._loading = value
            self._changed.notify_all()

    def _crash(self, reason: str) -> None:
        with self._changed:
            self.crashed = reason
            self._changed.notify_all()
        self.connection.drop_session(self.session, reason)

    # Requests

    def _intercept(self, params: dict[str, Any]) -> None:
        number, request = params["requestId"], params["request"]
        host = request["url"].split("://", 1)[-1].split("/", 1)[0].split("?", 1)[0].lower()
        site = self.sites.get(host) if request["url"].startswith(("http://", "https://")) else None
        if site is None:
            document = params.get("resourceType") == "Document"
            if document and len(self.messages) < MAX_MESSAGES:
                self.messages.append(f"{request['url'][:200]} was not opened, because its site is not available.")
            # If the request for a document is aborted, the current page stays; other errors would show an error page.
            reason = "Aborted" if document else "InternetDisconnected"
            self._reply("Fetch.failRequest", {"requestId": number, "errorReason": reason})
            with self._changed:
                self._refused = self._refused or (document and params.get("frameId") == self._frame)
                self._changed.notify_all()
            return
        with self._changed:
            self._requests.add(number)
        if site.quick:
            self._answer(site, number, request)
        else:
            work = threading.Thread(
                target=self._answer, args=(site, number, request), name="palestra-site", daemon=True
            )
            work.start()

    def _answer(self, site: Site, number: str, request: dict[str, Any]) -> None:
        parts = request.get("postDataEntries") or []
        body = b"".join(base64.b64decode(part.get("bytes", "")) for part in parts)
        try:
            response = site.respond(
                Request(method=request["method"], url=request["url"], headers=request["headers"], body=body)
            )
        except SiteFailed as err:
            self.failure = str(err)
            response = Response(status=502, body=b"The application does not respond.")
        params = {
            "requestId": number,
            "responseCode": response.status,
            "responseHeaders": [{"name": name, "value": value} for name, value in response.headers],
            "body": base64.b64encode(response.body).decode("ascii"),
        }
        self._reply("Fetch.fulfillRequest", params)
        with self._changed:
            self._requests.discard(number)
            self._changed.notify_all()

    def _reply(self, method: str, params: dict[str, Any]) -> None:
        try:
            self.connection.send(method, params, self.session)
        except BrowserLost as err:
            self._crash(str(err))

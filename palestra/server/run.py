"""Listens until it is told to stop: the process around the application, its signals, its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from palestra.optional import require
from palestra.server.app import App
from palestra.sockets import url_of
from palestra.workers.worker import calm_collector

KEEP_ALIVE = 75  # seconds an idle connection is kept
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """A log line as one JSON object, with whatever the event carries."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        shown |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            shown["trace"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


def set_up_log(level: str) -> None:
    """Structured lines on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("palestra.server", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "palestra.server" else "ERROR")


def run(
    app: App,
    held: socket.socket,
    *,
    drain: float = 30.0,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C: then no new sessions, `drain` seconds for those there are, and everything closed.

    A second signal stops at once. `ready` is told the address when sessions are taken.
    """
    uvicorn = require("uvicorn", extra="serve")
    require("httptools", extra="serve")
    from palestra.server.connection import HttpConnection, Socket, look_at

    options = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        http=HttpConnection,
        ws=Socket,
        ws_max_size=app.settings.max_body,
        ws_ping_interval=app.settings.ping,  # half-open ones are found out by it
        ws_ping_timeout=app.settings.ping,
        ws_per_message_deflate=False,
        lifespan="on",
    )

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Ours: a signal begins to drain."""
            yield

        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:  # once a second
                look_at(self.server_state.connections, app.settings.request_timeout)
            ends: bool = await super().on_tick(counter)
            return ends

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.should_exit:
                return
            loop = asyncio.get_running_loop()
            stop = Stop(app, self, drain)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.signalled)
            calm_collector()
            ready(url_of(held))

    with held:
        Server(options).run(sockets=[held])


class Stop:
    """What a signal sets going."""

    def __init__(self, app: App, server: Any, drain: float) -> None:
        self._app = app
        self._server = server
        self._drain = drain
        self._task: asyncio.Task[None] | None = None
        self._log = logging.getLogger("palestra.server")

    def signalled(self) -> None:
        if self._task is not None:
            self._stop()
            return
        self._app.desk.draining = True
        self._log.info("draining", extra={"sessions": len(self._app.desk.sessions), "seconds": self._drain})
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        end = time.monotonic() + self._drain
        while len(self._app.desk.sessions) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        self._stop()

    def _stop(self) -> None:
        self._log.info("stopping", extra={"sessions": len(self._app.desk.sessions)})
        self._app.desk.end_all()
        self._server.should_exit = True

"""Run the server: listen for connections, write logs, and drain sessions on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra import plugins
from palestra.errors import BadValue
from palestra.machine import usable_cores
from palestra.optional import require
from palestra.sockets import is_loopback, listen, url_of
from palestra.workers.worker_setup import tune_gc

if TYPE_CHECKING:
    from palestra.server.app import App

KEEP_ALIVE = 75  # seconds until an idle connection is closed
TOKEN_VARIABLE = "PALESTRA_TOKEN"  # environment variable that contains a single token
log = logging.getLogger("palestra.server")
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def create_app(
    envs: str | Iterable[str],
    *,
    workers: int = 1,
    python: Iterable[str] = (),
    imports: Iterable[str] = (),
    **settings: Any,
) -> App:
    """Return an ASGI application that serves `envs`, for Uvicorn, Ray Serve or any ASGI server with lifespan support.

    Args:
        envs: Environments to serve: ids, `module:Class`, URLs, or whole families such as `game:`.
        workers: Number of worker processes per interpreter.
        python: Interpreters for families whose packages conflict with others, each as FAMILY=PATH.
        imports: Modules to import at startup in the server and its workers, e.g. to register environments.
        **settings: Any other field of `palestra.server.settings.Settings`.
    """
    require("msgspec", extra="serve")
    from palestra.server.app import App
    from palestra.server.protocols import all_protocols
    from palestra.server.settings import Settings, resolve_env_names, worker_groups

    plugins.import_modules(imports)
    names = [envs] if isinstance(envs, str) else envs
    resolved = Settings(
        envs=resolve_env_names(names),
        groups=worker_groups(workers, python),
        imports=plugins.imported_modules(),
        **settings,
    )
    return App(resolved, all_protocols(resolved))


def serve(
    envs: str | Iterable[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8100,
    workers: int | None = None,
    python: Iterable[str] = (),
    imports: Iterable[str] = (),
    token_file: str | Path | None = None,
    max_sessions: int = 4_096,
    sessions_per_client: int | None = None,
    rate: float | None = None,
    lease: float = 600.0,
    step_timeout: float = 120.0,
    reset_timeout: float | None = None,
    max_body: float = 16.0,
    buffer: float = 512.0,
    buffer_per_client: float = 64.0,
    memory: float | None = None,
    any_kwargs: bool = False,
    debug: bool = False,
    drain: float = 30.0,
    node: str = "",
    log_level: str | None = "info",
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve environments until SIGTERM or Ctrl-C, like `palestra serve`.

    Args:
        envs: Environments to serve: ids, `module:Class`, URLs, or whole families such as `game:`.
        host: Address to listen on. Any address other than loopback requires tokens.
        port: Port to listen on. 0 selects a free port; `on_ready` receives the URL.
        workers: Number of worker processes (default: one per core).
        python: Interpreters for families whose packages conflict with others, each as FAMILY=PATH.
        imports: Modules to import at startup, e.g. to register environments.
        token_file: File with one `token` or `name token` per line. A single token can be set in PALESTRA_TOKEN instead.
        max_sessions: Maximum number of open sessions.
        sessions_per_client: Maximum number of open sessions per token (default: half of `max_sessions` if there are
            several tokens, otherwise no limit).
        rate: Maximum number of requests per second per token.
        lease: Seconds after which an unused session ends.
        step_timeout: Maximum duration of a step in seconds.
        reset_timeout: Maximum duration in seconds of creating or resetting an environment (default: `step_timeout`).
        max_body: Maximum size of a request in MiB.
        buffer: Maximum size in MiB of all requests and responses in flight; `capacity` is returned beyond it.
        buffer_per_client: Maximum size in MiB of the requests and responses in flight per token.
        memory: Maximum memory per worker in MiB.
        any_kwargs: Accept keyword arguments from clients even if they could be file paths on this machine.
        debug: Send exception texts and tracebacks from environments to all clients. Otherwise, only clients of a
            loopback address receive them, and the log contains them by session.
        drain: Seconds for which open sessions may continue after SIGTERM or Ctrl-C.
        node: Prefix for session names, for load balancers that route by path.
        log_level: Minimum level for the JSON log lines on standard error; None leaves logging unchanged.
        on_ready: Function to call with the URL when the server accepts sessions.
    """
    for module in ("msgspec", "uvicorn", "websockets"):
        require(module, extra="serve")
    from palestra.server.settings import read_tokens

    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise BadValue("serve() blocks and cannot run inside an event loop; use `with palestra.server.running(...)`")
    tokens = read_tokens(token_file) if token_file else {}
    if not tokens and os.environ.get(TOKEN_VARIABLE):
        tokens = {os.environ[TOKEN_VARIABLE]: "client"}
    if not tokens and not is_loopback(host):
        raise BadValue(
            f"listening on {host} requires a token, because other machines can reach it; create one with "
            f"`openssl rand -hex 16 > FILE` and pass --token-file FILE (token_file=), or set {TOKEN_VARIABLE}"
        )
    app = create_app(
        envs,
        workers=workers if workers is not None else usable_cores(),
        python=python,
        imports=imports,
        tokens=tokens,
        any_host=bool(tokens) or not is_loopback(host),
        any_kwargs=any_kwargs,
        node=node,
        lease=lease,
        step_timeout=step_timeout,
        reset_timeout=reset_timeout,
        max_sessions=max_sessions,
        sessions_per_client=sessions_per_client,
        rate=rate,
        max_body=int(max_body * 2**20),
        buffer=int(buffer * 2**20),
        buffer_per_client=int(buffer_per_client * 2**20),
        expose_errors=debug or is_loopback(host),
        memory=None if memory is None else int(memory * 2**20),
    )
    if log_level is not None:
        configure_logging(log_level)
    run_app(app, listen(host, port, backlog=2_048), drain=drain, on_ready=on_ready)


def run_app(
    app: App, listener: socket.socket, *, drain: float = 30.0, on_ready: Callable[[str], None] | None = None
) -> None:
    """Run an application on a listening socket until SIGTERM or Ctrl-C.

    After the first signal, no new sessions are accepted, and open sessions may continue for `drain` seconds. A second
    signal stops the server immediately.
    """
    uvicorn = require("uvicorn", extra="serve")
    require("httptools", extra="serve")
    from palestra.server.connection import HttpConnection, WebSocketConnection, check_connections

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        http=HttpConnection,
        ws=WebSocketConnection,
        ws_max_size=app.settings.max_body,
        ws_ping_interval=app.settings.ping,  # detects half-open connections
        ws_ping_timeout=app.settings.ping,
        ws_per_message_deflate=False,
        lifespan="on",
    )

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Disable uvicorn's signal handlers, because `Shutdown` handles the signals."""
            yield

        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:  # uvicorn calls this method ten times per second
                check_connections(self.server_state.connections, app.settings.request_timeout)
            should_exit: bool = await super().on_tick(counter)
            return should_exit

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.should_exit:
                return
            if threading.current_thread() is threading.main_thread():
                loop = asyncio.get_running_loop()
                shutdown = Shutdown(app, self, drain)
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, shutdown.on_signal)
            tune_gc()
            url = url_of(listener)
            log.info("listening", extra={"url": url, "envs": len(app.settings.envs)})
            if on_ready is not None:
                on_ready(url)

    with listener:
        Server(config).run(sockets=[listener])


class Shutdown:
    """Drains sessions on the first signal and stops the server on the second."""

    def __init__(self, app: App, server: Any, drain: float) -> None:
        self._dispatcher = app.dispatcher
        self._server = server
        self._drain = drain
        self._task: asyncio.Task[None] | None = None

    def on_signal(self) -> None:
        if self._task is not None:
            self._stop()
            return
        self._dispatcher.draining = True
        log.info("draining", extra={"sessions": len(self._dispatcher.sessions), "seconds": self._drain})
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        end = time.monotonic() + self._drain
        while len(self._dispatcher.sessions) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        self._stop()

    def _stop(self) -> None:
        log.info("stopping", extra={"sessions": len(self._dispatcher.sessions)})
        self._dispatcher.end_all()
        self._server.should_exit = True


class JsonFormatter(logging.Formatter):
    """Formats a log record and its extra fields as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str) -> None:
    """Configure the server's logger to write JSON lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("palestra.server", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "palestra.server" else "ERROR")

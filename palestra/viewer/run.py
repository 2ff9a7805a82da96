"""Run the viewer's web server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from palestra.errors import BadValue
from palestra.optional import require
from palestra.sockets import is_loopback, listen, url_of
from palestra.viewer import create_app


def serve(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8300,
    token: str | None = None,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve `folder` at `host` until interrupted, and call `ready` with the URL; remote access requires a token.

    `step_timeout` and `reset_timeout` limit the duration of calls to played environments in seconds.
    """
    loopback = is_loopback(host)
    if not loopback and not token:
        raise BadValue(
            f"--host {host} would expose everything in {folder} to other machines: set a secret with --token "
            "(or PALESTRA_VIEW_TOKEN), or omit --host"
        )
    uvicorn = require("uvicorn", extra="viewer")
    app = create_app(
        folder, token=token or None, any_host=not loopback, step_timeout=step_timeout, reset_timeout=reset_timeout
    )
    held = listen(host, port)
    options = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    ready(f"{url_of(held)}/")
    with held:
        uvicorn.Server(options).run(sockets=[held])

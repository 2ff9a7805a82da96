"""Listens, and shows a folder until it is told to stop."""

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
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Show `folder` at `host`; `ready` is told the address. Without a token only this machine is let in."""
    near = is_loopback(host)
    if not near and not token:
        raise BadValue(
            f"others could read everything in {folder} at {host}: give them a secret with --token "
            "(or PALESTRA_VIEW_TOKEN), or leave --host out"
        )
    uvicorn = require("uvicorn", extra="viewer")
    app = create_app(folder, token=token or None, any_host=not near)
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

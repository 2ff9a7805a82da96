"""Listens, and shows a folder until it is told to stop."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path

from palestra.errors import BadValue
from palestra.optional import require
from palestra.viewer import create_app


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
    held = _held(host, port)
    options = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    name = f"[{host}]" if ":" in host else host
    ready(f"http://{name}:{held.getsockname()[1]}/")
    with held:
        uvicorn.Server(options).run(sockets=[held])


def _held(host: str, port: int) -> socket.socket:
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
        held.listen(128)  # from here on visitors wait instead of being turned away
    except OSError as err:
        held.close()
        raise BadValue(f"cannot listen on {host}:{port}: {err.strerror}; choose another with --port") from err
    return held

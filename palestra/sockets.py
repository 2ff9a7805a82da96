"""Create listening sockets for servers and return their URLs."""

from __future__ import annotations

import ipaddress
import socket

from palestra.errors import BadValue


def is_loopback(host: str) -> bool:
    """Return whether `host` is a loopback address, which only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, backlog: int = 128) -> socket.socket:
    """Return a listening socket. Connections are queued from now on, even if the server has not started yet."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(backlog)
    except (OSError, OverflowError) as err:
        listener.close()
        reason = getattr(err, "strerror", None) or err
        raise BadValue(f"cannot listen on {host}:{port}: {reason}; choose another --host or --port") from err
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"

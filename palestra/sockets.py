"""Addresses to listen on."""

from __future__ import annotations

import ipaddress
import socket

from palestra.errors import BadValue


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A socket at which visitors wait from now on, instead of being turned away."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
        held.listen(backlog)
    except (OSError, OverflowError) as err:
        held.close()
        why = getattr(err, "strerror", None) or err
        raise BadValue(f"cannot listen on {host}:{port}: {why}; choose another with --host or --port") from err
    return held


def url_of(held: socket.socket) -> str:
    """The address of a listening socket, as a client writes it."""
    host, port = held.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"

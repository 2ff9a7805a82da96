"""Environment server. `serve` runs it, `running` starts it in the background, and `create_app` returns an ASGI app.

Clients connect with `palestra.make("http://HOST:PORT/ID")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.server.background import running
    from palestra.server.run import create_app, serve

__all__ = ["create_app", "running", "serve"]

_MODULES = {"create_app": "run", "running": "background", "serve": "run"}


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: worker processes import this package and need none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value

"""Environment server. `serve` runs it, `running` starts it in the background, and `create_app` returns an ASGI app.

Clients connect with `palestra.make("http://HOST:PORT/ID")`.
"""

from __future__ import annotations

from palestra.server.background import running
from palestra.server.run import create_app, serve

__all__ = ["create_app", "running", "serve"]

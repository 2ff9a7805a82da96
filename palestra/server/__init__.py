"""Environments as a service: `create_app` makes a server, `running` has one for a while; `palestra.make(url)` plays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from palestra.server.local import running

if TYPE_CHECKING:
    from palestra.server.app import App

__all__ = ["create_app", "running"]


def create_app(envs: Iterable[str], *, workers: int = 1, python: Iterable[str] = (), **settings: Any) -> App:
    """An ASGI application that serves `envs`: ids, and families written `game:`.

    `workers` processes run them (of each interpreter in `python`, FAMILY=PATH); `settings` are those of
    `palestra.server.settings.Settings`. Uvicorn, Ray Serve or any ASGI server runs it, with its lifespan on.
    """
    from palestra.optional import require

    require("msgspec", extra="serve")
    from palestra.server.app import App
    from palestra.server.protocols import all_dialects
    from palestra.server.settings import Settings, groups_of, served_ids

    imports = settings.pop("imports", ())
    for module in imports:
        __import__(module)
    given = Settings(envs=served_ids(envs), groups=groups_of(workers, python), imports=tuple(imports), **settings)
    return App(given, all_dialects(given))

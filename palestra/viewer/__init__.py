"""Web viewer for a folder of runs: learning curves, episodes, tokens, and playing environments in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["create_app"]


def create_app(folder: str | Path, *, token: str | None = None, any_host: bool = False) -> FastAPI:
    """Return the viewer of `folder` as an ASGI application; `palestra view` serves it.

    Every client must present `token`, if given. `any_host` accepts requests for any host name and requires a token.
    """
    from palestra.optional import require

    require("fastapi", extra="viewer")
    from palestra.viewer.app import create_app as create

    return create(folder, token=token, any_host=any_host)

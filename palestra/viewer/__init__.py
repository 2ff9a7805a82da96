"""A folder of runs -> pages in a browser: curves, episodes turn by turn, tokens, and a place to play."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["create_app"]


def create_app(folder: str | Path, *, token: str | None = None, any_host: bool = False) -> FastAPI:
    """The viewer of `folder` as an ASGI application; `palestra view` serves it.

    `token` is asked of every visitor. `any_host` lets requests in whatever name they were sent to, and needs a token.
    """
    from palestra.optional import require

    require("fastapi", extra="viewer")
    from palestra.viewer.app import create_app as create

    return create(folder, token=token, any_host=any_host)

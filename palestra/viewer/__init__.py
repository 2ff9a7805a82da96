"""Web viewer for a folder of runs: learning curves, episodes, tokens, and environments to play in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["create_app"]


def create_app(
    folder: str | Path,
    *,
    token: str | None = None,
    any_host: bool = False,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
) -> FastAPI:
    """Return an ASGI application that displays the runs in `folder`, as served by `palestra view`.

    If `token` is set, clients must authenticate with it. `any_host` accepts requests for any host name and requires a
    token. `step_timeout` and `reset_timeout` limit the duration of calls to played environments in seconds.
    """
    from palestra.optional import require

    require("fastapi", extra="viewer")
    from palestra.viewer.app import create_app as create

    return create(folder, token=token, any_host=any_host, step_timeout=step_timeout, reset_timeout=reset_timeout)

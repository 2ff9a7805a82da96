"""Addresses, as `palestra.make` and `palestra.make_vec` are given them."""

from __future__ import annotations

import inspect
from typing import Any

from palestra.core import Env
from palestra.remote.agentgym import make_agentgym
from palestra.remote.client import RemoteEnv
from palestra.remote.openenv import make_openenv

_OPTIONS = frozenset(inspect.signature(RemoteEnv.__init__).parameters) - {"self", "url", "kwargs"}


def make_remote(url: str, /, **kwargs: Any) -> Env:
    """The environment at `url`; keywords of RemoteEnv's (token, recover, timeout ...) are its own, the rest the env's.

    `kwargs={...}` gives the env keywords of those names. `agentgym+http://...` and `openenv+http://...` are servers of
    those projects (see `palestra.remote.agentgym and palestra.remote.openenv`).
    """
    if url.startswith("agentgym+"):
        return make_agentgym(url, **kwargs)
    if url.startswith("openenv+"):
        return make_openenv(url, **kwargs)
    options = {name: kwargs.pop(name) for name in _OPTIONS & kwargs.keys()}
    own = {**kwargs.pop("kwargs", {}), **kwargs}
    return RemoteEnv(url, kwargs=own, **options)

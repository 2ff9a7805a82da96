"""Create the environment at a URL."""

from __future__ import annotations

import inspect
from typing import Any

from palestra.core import Env
from palestra.remote.agentgym import AgentGymEnv
from palestra.remote.client import RemoteEnv
from palestra.remote.openenv import OpenEnvEnv

_OPTIONS = frozenset(inspect.signature(RemoteEnv.__init__).parameters) - {"self", "url", "kwargs"}


def make_remote(url: str, /, **kwargs: Any) -> Env:
    """Return the environment at `url`.

    Keyword arguments of RemoteEnv (token, recover, timeout ...) configure the client; all others are passed to the
    environment on the server. If the environment has an argument with one of these names, pass it in `kwargs={...}`.
    `agentgym+http://...` and `openenv+http://...` are URLs of AgentGym and OpenEnv servers, see `AgentGymEnv` and
    `OpenEnvEnv`.
    """
    if url.startswith("agentgym+"):
        return AgentGymEnv(url, **kwargs)
    if url.startswith("openenv+"):
        return OpenEnvEnv(url, **kwargs)
    options = {name: kwargs.pop(name) for name in _OPTIONS & kwargs.keys()}
    env_kwargs = {**kwargs.pop("kwargs", {}), **kwargs}
    return RemoteEnv(url, kwargs=env_kwargs, **options)

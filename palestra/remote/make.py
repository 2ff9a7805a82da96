"""Create the environment at a URL."""

from __future__ import annotations

from typing import Any

from palestra.core import Env
from palestra.remote.agentgym import AgentGymEnv
from palestra.remote.client import CLIENT_OPTIONS, RemoteEnv
from palestra.remote.openenv import OpenEnvEnv


def make_remote(url: str, /, **kwargs: Any) -> Env:
    """Return the environment at `url`.

    Keyword arguments of RemoteEnv (such as token, recover and timeout) configure the client. All others are passed to
    the environment on the server. If an environment's argument has the same name as one of RemoteEnv's arguments, pass
    it in `kwargs={...}`. A URL that starts with `agentgym+` or `openenv+` returns an `AgentGymEnv` or `OpenEnvEnv`.
    """
    if url.startswith("agentgym+"):
        return AgentGymEnv(url, **kwargs)
    if url.startswith("openenv+"):
        return OpenEnvEnv(url, **kwargs)
    options = {name: kwargs.pop(name) for name in CLIENT_OPTIONS & kwargs.keys()}
    env_kwargs = {**kwargs.pop("kwargs", {}), **kwargs}
    return RemoteEnv(url, kwargs=env_kwargs, **options)

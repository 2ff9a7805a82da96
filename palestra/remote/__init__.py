"""Use environments on a server: `palestra.make("http://host:8100/game:Wordle-v0-easy")` returns a `RemoteEnv`."""

from __future__ import annotations

from palestra.remote.agentgym import AgentGymEnv
from palestra.remote.client import RemoteEnv
from palestra.remote.make import make_remote
from palestra.remote.openenv import OpenEnvEnv

__all__ = ["AgentGymEnv", "OpenEnvEnv", "RemoteEnv", "make_remote"]

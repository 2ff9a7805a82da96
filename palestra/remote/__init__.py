"""Environments behind a URL: `palestra.make("http://host:8100/game:Wordle-v0-easy")` returns a `RemoteEnv`."""

from __future__ import annotations

from palestra.remote.agentgym import AgentGymEnv, make_agentgym
from palestra.remote.client import RemoteEnv
from palestra.remote.make import make_remote
from palestra.remote.openenv import OpenEnvEnv, make_openenv

__all__ = ["AgentGymEnv", "OpenEnvEnv", "RemoteEnv", "make_agentgym", "make_openenv", "make_remote"]

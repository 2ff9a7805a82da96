"""Environments that live on servers of other projects, as Envs: AgentGym's, and OpenEnv's."""

from __future__ import annotations

from palestra.serve.foreign.agentgym import AgentGymEnv, make_agentgym
from palestra.serve.foreign.openenv import OpenEnvEnv, make_openenv

__all__ = ["AgentGymEnv", "OpenEnvEnv", "make_agentgym", "make_openenv"]

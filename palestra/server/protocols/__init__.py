"""Adapters for other projects' protocols. The server offers each protocol under its own path prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.server.app import ProtocolAdapter
    from palestra.server.settings import Settings


def all_protocols(settings: Settings) -> list[ProtocolAdapter]:
    """Return an adapter for each supported protocol."""
    from palestra.server.protocols.agentgym import AgentGym
    from palestra.server.protocols.mcp import Mcp
    from palestra.server.protocols.openenv import OpenEnv

    return [AgentGym(settings), OpenEnv(settings), Mcp(settings)]

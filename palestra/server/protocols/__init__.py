"""Adapters for the protocols of other projects, which the same server offers under separate path prefixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.server.app import ProtocolAdapter
    from palestra.server.settings import Settings


def all_protocols(settings: Settings) -> list[ProtocolAdapter]:
    """Return one adapter per protocol."""
    from palestra.server.protocols.agentgym import AgentGym
    from palestra.server.protocols.mcp import Mcp
    from palestra.server.protocols.openenv import OpenEnv

    return [AgentGym(settings), OpenEnv(settings), Mcp(settings)]

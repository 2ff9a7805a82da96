"""Protocols of others on the same server, a module each: a prefix of their own, the same desk behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.server.app import Dialect
    from palestra.server.settings import Settings


def all_dialects(settings: Settings) -> list[Dialect]:
    """Those that this server can speak."""
    from palestra.server.protocols.agentgym import AgentGym
    from palestra.server.protocols.mcp import Mcp
    from palestra.server.protocols.openenv import OpenEnv

    return [AgentGym(settings), OpenEnv(settings), Mcp(settings)]

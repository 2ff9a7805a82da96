"""Protocols of others on the same server, a module each: a prefix of their own, the same desk behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.serve.app import Dialect
    from palestra.serve.settings import Settings


def all_dialects(settings: Settings) -> list[Dialect]:
    """Those that this server can speak."""
    from palestra.serve.dialects.agentgym import AgentGym
    from palestra.serve.dialects.mcp import Mcp
    from palestra.serve.dialects.openenv import OpenEnv

    return [AgentGym(settings), OpenEnv(settings), Mcp(settings)]

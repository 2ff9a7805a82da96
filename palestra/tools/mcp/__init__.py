"""MCP servers as tools: `tools=["mcp:uvx mcp-server-time"]`, or an address, or a JSON file with `mcpServers`."""

from palestra.tools.mcp.servers import Address, Program
from palestra.tools.mcp.toolset import McpTools

__all__ = ["Address", "McpTools", "Program"]

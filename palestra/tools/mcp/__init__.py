"""Tools of MCP servers: `tools=["mcp:COMMAND"]`, `["mcp:URL"]` or `["mcp:FILE.json"]` with `mcpServers`."""

from palestra.tools.mcp.servers import HttpServer, StdioServer
from palestra.tools.mcp.toolset import McpTools

__all__ = ["HttpServer", "McpTools", "StdioServer"]

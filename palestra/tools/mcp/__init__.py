"""Tools on MCP servers: `tools=["mcp:COMMAND"]`, `tools=["mcp:URL"]` or `tools=["mcp:FILE.json"]`.

The JSON file contains `mcpServers`, as in the configuration files of other MCP clients.
"""

from palestra.tools.mcp.servers import HttpServer, StdioServer
from palestra.tools.mcp.toolset import McpTools

__all__ = ["HttpServer", "McpTools", "StdioServer"]

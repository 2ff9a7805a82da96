"""Environments as MCP servers, so that any MCP client can play them. (MCP servers as tools: `palestra.tools.mcp`.)

from palestra.integrations.mcp import serve, server_of

serve("game:Sudoku-v0-easy")                    # on standard input and output; what `palestra mcp-serve` does
serve("game:Sudoku-v0-easy", http=8000)         # at http://127.0.0.1:8000/mcp
"""

from palestra.optional import require

require("mcp", extra="mcp")  # before the module below says it less helpfully

from palestra.integrations.mcp.to_mcp import serve, server_of  # noqa: E402

__all__ = ["serve", "server_of"]

"""Serve environments to any MCP client. (`palestra.tools.mcp` does the opposite: it uses MCP servers as tools.)

from palestra.integrations.mcp import create_server, serve

serve("game:Sudoku-v0-easy")                    # over standard input and output, like `palestra mcp-serve`
serve("game:Sudoku-v0-easy", http=8000)         # at http://127.0.0.1:8000/mcp
"""

from palestra.optional import require

# Must precede the import below, because its error message would not contain the pip command.
require("mcp", extra="mcp")

from palestra.integrations.mcp.to_mcp import create_server, serve  # noqa: E402

__all__ = ["create_server", "serve"]

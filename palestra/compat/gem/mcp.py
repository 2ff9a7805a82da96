"""GEM's `MCPTool`: call tools on MCP servers with `<tool_call>` elements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Self

from palestra.compat.gem.tool_classes import BaseTool, Execution
from palestra.errors import BadValue
from palestra.tools.base import on_tool_loop
from palestra.tools.mcp import McpTools
from palestra.types import text_of

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NAME = re.compile(r"<tool_name>(.*?)</tool_name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<arguments>(.*?)</arguments>", re.DOTALL)


class MCPTool(BaseTool):
    """Tools on MCP servers; `config` is a URL or a configuration with `mcpServers`.

    A tool on one of several servers is called SERVER__TOOL if another server has a tool with the same name. A server
    that fails raises ToolFailed. Arguments that only affect FastMCP (handlers and retries) are ignored.
    """

    tool_type = "mcp"

    def __init__(
        self,
        config: str | dict[str, Any],
        auth: str | None = None,
        headers: dict[str, str] | None = None,
        execution_timeout: float = 30.0,
        validate_on_init: bool = True,
        num_workers: int = 1,
        **_: Any,
    ) -> None:
        super().__init__(num_workers)
        self.execution_timeout = execution_timeout
        self.reconfigure(config, auth, headers)
        if validate_on_init and not self.get_available_tools():
            raise ValueError(f"the MCP servers have no tools: {self.normalized_config}")

    def reconfigure(
        self, new_config: str | dict[str, Any], auth: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        """Replace the servers."""
        self.raw_config = new_config
        self.normalized_config = _normalize(new_config, auth, headers)
        self._toolset = McpTools(self.normalized_config, session="shared", timeout=self.execution_timeout)

    @classmethod
    def from_url(cls, url: str, auth: str | None = None, headers: dict[str, str] | None = None, **more: Any) -> Self:
        """Use one server over HTTP."""
        return cls(url, auth, headers, **more)

    @classmethod
    def from_config_file(cls, config_path: str, **more: Any) -> Self:
        """Use the servers in a JSON file."""
        return cls(json.loads(Path(config_path).read_text(encoding="utf-8")), **more)

    @classmethod
    def from_local_command(cls, server_params: dict[str, Any], name: str = "default", **more: Any) -> Self:
        """Use a server that is started as a process; `server_params` has `command`, `args` and optionally `env`."""
        return cls({"mcpServers": {name: server_params}}, **more)

    @classmethod
    def from_multi_server(cls, servers: dict[str, str], **more: Any) -> Self:
        """Use several servers over HTTP, given as {name: URL}."""
        return cls({"mcpServers": {name: {"url": url} for name, url in servers.items()}}, **more)

    def get_available_tools(self) -> list[dict[str, Any]]:
        """Return the name, description and parameters of every tool."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self._toolset.tools
        ]

    def instruction_string(self) -> str:
        functions = (
            json.dumps({"type": "function", "function": tool})
            for tool in sorted(self.get_available_tools(), key=lambda tool: tool["name"])
        )
        listed = "\n".join(functions)
        return (
            "You can call the tools below, one per reply. The next message shows the result. Write a call as\n"
            '<tool_call><tool_name>NAME</tool_name><arguments>{"PARAMETER": "VALUE"}</arguments></tool_call>\n'
            f"where the arguments are a JSON object.\n<tools>\n{listed}\n</tools>"
        )

    def execute_action(self, action: str) -> Execution:
        call = _CALL.search(action)
        name = None if call is None else _NAME.search(call[1])
        if call is None or name is None:
            return False, True, "", ""
        parsed = action[: call.end()]
        given = _ARGUMENTS.search(call[1])
        try:
            arguments = json.loads(given[1]) if given else {}
        except json.JSONDecodeError:
            return False, True, "", ""
        tools = {tool.name: tool for tool in self._toolset.tools}
        tool = tools.get(name[1].strip())
        if tool is None:
            return False, True, f"Tool {name[1].strip()!r} not found. Available tools: {', '.join(tools)}", parsed
        if not isinstance(arguments, dict):
            return True, True, "Error: the arguments must be a JSON object", parsed
        result = on_tool_loop(tool.acall(**arguments)).result()
        return True, not result.ok, text_of(result.text), parsed

    def close(self) -> None:
        """End the session."""
        self._toolset.close()


def _normalize(config: str | dict[str, Any], auth: str | None, headers: dict[str, str] | None) -> dict[str, Any]:
    if isinstance(config, str):
        token = {} if auth is None else {"Authorization": f"Bearer {auth}"}
        return {"mcpServers": {"default": {"url": config, "headers": {**token, **(headers or {})}}}}
    if not isinstance(config, dict) or "mcpServers" not in config:
        raise BadValue(f"`config` must be a URL or a mapping with 'mcpServers', got {config!r}")
    return config

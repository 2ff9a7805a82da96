"""MCP server that offers one environment through two tools, `reset` and `step`."""

from __future__ import annotations

import base64
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from palestra import __version__
from palestra.errors import EnvFailed, InfrastructureError, UsageError
from palestra.integrations.mcp.episodes import Episodes
from palestra.registry import get_spec, make
from palestra.types import Observation

_INSTRUCTIONS = """\
This server provides the environment {id}: {summary}
Call `reset` to start an episode and read its rules. Then call `step` with one action at a time, in the format that \
the rules describe, until the result says that the episode is over. A total reward of 1 means the task is solved."""
_IMAGE_TYPES = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))


def create_server(
    env_id: str,
    *,
    single: bool = True,
    seed: int | None = None,
    tools: Sequence[Any] = (),
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    **kwargs: Any,
) -> MCPServer[Any]:
    """Create the SDK's MCPServer without running it.

    With `single`, the server has only one client, so its `step` tool takes no episode key. An environment call that
    takes longer than `step_timeout` or `reset_timeout` seconds ends the episode with an error.
    """
    timeouts = {"step_timeout": step_timeout, "reset_timeout": reset_timeout}
    return _build(env_id, single=single, seed=seed, tools=tools, timeouts=timeouts, **kwargs)[0]


def _build(
    env_id: str,
    *,
    single: bool,
    seed: int | None,
    tools: Sequence[Any],
    timeouts: Mapping[str, float | None],
    **kwargs: Any,
) -> tuple[MCPServer[Any], Episodes]:
    spec = get_spec(env_id)
    with make(env_id, tools=tools, **kwargs):
        pass  # report invalid keyword arguments now instead of at the first reset
    episodes = Episodes(lambda: make(env_id, tools=tools, **kwargs), single=single, seed=seed, **timeouts)

    @asynccontextmanager
    async def lifespan(_server: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            episodes.close()

    server: MCPServer[Any] = MCPServer(
        f"palestra {env_id}",
        version=__version__,
        instructions=_INSTRUCTIONS.format(id=env_id, summary=spec.summary or "a text environment"),
        log_level="WARNING",
        lifespan=lifespan
        if single
        else None,  # over HTTP, every MCP session has a lifespan, but episodes must outlive MCP sessions
    )

    async def reset(seed: int | None = None) -> CallToolResult:
        """Start an episode and return the task, its rules and the action format. A seed makes it reproducible."""
        with _tool_errors():
            episode, observation, info = await episodes.reset(seed)
        structured: dict[str, Any] = {"episode": episode.key, "info": _jsonable(info)}
        note = None if single else f'[episode "{episode.key}": pass it to every step]'
        return _tool_result(observation, structured, note)

    async def run_step(episode: str | None, action: str) -> CallToolResult:
        with _tool_errors():
            running, step = await episodes.step(episode, action)
        structured = {
            "episode": running.key,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "info": _jsonable(step.info),
        }
        note = f"[reward {step.reward:g}]" if step.reward else None
        if step.done:
            outcome = "solved" if step.info.get("success") else "not solved"
            note = f"[reward {step.reward:g}; the episode is over: {outcome}]"
        return _tool_result(step.observation, structured, note)

    async def step(action: str) -> CallToolResult:
        """Take one action in the running episode, in the format that `reset` described."""
        return await run_step(None, action)

    async def step_in(episode: str, action: str) -> CallToolResult:
        """Take one action in the episode with this id, in the format that `reset` described."""
        return await run_step(episode, action)

    server.add_tool(reset, name="reset", structured_output=False)
    server.add_tool(step if single else step_in, name="step", structured_output=False)
    return server, episodes


def serve(
    env_id: str,
    *,
    http: int | None = None,
    host: str = "127.0.0.1",
    seed: int | None = None,
    tools: Sequence[Any] = (),
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    ready: Callable[[str], None] | None = None,
    **kwargs: Any,
) -> None:
    """Serve an environment over standard input and output, or over HTTP if `http` is set to a port.

    `http=0` selects a free port. `ready` is called with the HTTP server's URL. `step_timeout` and `reset_timeout` are
    as in `create_server`.
    """
    timeouts = {"step_timeout": step_timeout, "reset_timeout": reset_timeout}
    server, episodes = _build(env_id, single=http is None, seed=seed, tools=tools, timeouts=timeouts, **kwargs)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    if http is None:
        server.run("stdio")  # the SDK redirects the environment's prints to standard error
        return
    port = http or _free_port(host)
    address = f"http://{host}:{port}/mcp"
    if ready is not None:
        ready(address)
    else:
        sys.stderr.write(f"Serving {env_id} at {address} (press Ctrl-C to stop)\n")
        sys.stderr.flush()
    try:
        server.run("streamable-http", host=host, port=port)
    finally:
        episodes.close()


def _free_port(host: str) -> int:
    try:
        with socket.create_server((host, 0)) as listener:
            return int(listener.getsockname()[1])
    except OSError as err:
        raise EnvFailed(f"cannot listen on {host}: {err.strerror}") from err


class _tool_errors:  # noqa: N801  # a context manager
    """Report usage errors and infrastructure errors to the model; other exceptions are bugs in the server."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: object) -> None:
        if isinstance(err, UsageError | InfrastructureError):
            raise ToolError(str(err)) from err


def _tool_result(observation: Observation, structured: dict[str, Any], note: str | None) -> CallToolResult:
    blocks = [_content_block(part) for part in _parts(observation)]
    if note is not None:
        blocks.append(TextContent(type="text", text=note))
    return CallToolResult(content=blocks, structured_content=structured)


def _parts(observation: Observation) -> Sequence[Any]:
    return [{"type": "text", "text": observation}] if isinstance(observation, str) else observation


def _content_block(part: Any) -> ContentBlock:
    if part["type"] == "text":
        return TextContent(type="text", text=part["text"])
    raw: bytes = part["image"]
    mime_type = next((kind for start, kind in _IMAGE_TYPES if raw.startswith(start)), "application/octet-stream")
    return ImageContent(type="image", data=base64.b64encode(raw).decode(), mime_type=mime_type)


def _jsonable(info: dict[str, Any]) -> Any:
    """Return `info` with all values that JSON cannot represent converted to strings."""
    return json.loads(json.dumps(info, default=repr))

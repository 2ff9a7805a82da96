"""An environment's id -> an MCP server with two tools, `reset` and `step`."""

from __future__ import annotations

import base64
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
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
This server offers the environment {id}: {summary}
Call `reset` to begin an episode and read the rules; then call `step` with one action at a time, written as the rules \
say, until the answer tells that the episode is over. A reward of 1 in all means that the task is solved."""
_PICTURES = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))


def server_of(
    env_id: str, *, single: bool = True, seed: int | None = None, tools: Sequence[Any] = (), **kwargs: Any
) -> MCPServer[Any]:
    """The SDK's server, not yet running. `single`: for one client, which then need not name its episode."""
    return _built(env_id, single=single, seed=seed, tools=tools, **kwargs)[0]


def _built(
    env_id: str, *, single: bool, seed: int | None, tools: Sequence[Any], **kwargs: Any
) -> tuple[MCPServer[Any], Episodes]:
    spec = get_spec(env_id)
    with make(env_id, tools=tools, **kwargs):
        pass  # a wrong keyword is told now, not to the first client
    episodes = Episodes(lambda: make(env_id, tools=tools, **kwargs), single=single, seed=seed)

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
        lifespan=lifespan if single else None,  # over HTTP a lifespan is a session's, and episodes outlive those
    )

    async def reset(seed: int | None = None) -> CallToolResult:
        """Begin an episode: the task, its rules, and the format of actions. The same seed gives the same episode."""
        with _told():
            episode, observation, info = await episodes.reset(seed)
        facts: dict[str, Any] = {"episode": episode.key, "info": _plain(info)}
        note = None if single else f'[episode "{episode.key}": name it in every step]'
        return _answer(observation, facts, note)

    async def stepped(episode: str | None, action: str) -> CallToolResult:
        with _told():
            played, step = await episodes.step(episode, action)
        facts = {
            "episode": played.key,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "info": _plain(step.info),
        }
        note = f"[reward {step.reward:g}]" if step.reward else None
        if step.done:
            outcome = "solved" if step.info.get("success") else "not solved"
            note = f"[reward {step.reward:g}; the episode is over: {outcome}]"
        return _answer(step.observation, facts, note)

    async def step(action: str) -> CallToolResult:
        """Take one action in the episode that `reset` began, written as its rules say."""
        return await stepped(None, action)

    async def step_in(episode: str, action: str) -> CallToolResult:
        """Take one action, written as the rules say, in the episode whose name `reset` told."""
        return await stepped(episode, action)

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
    ready: Callable[[str], None] | None = None,
    **kwargs: Any,
) -> None:
    """Serve until the client leaves (standard input and output) or forever (`http`, a port; 0 for a free one)."""
    server, episodes = _built(env_id, single=http is None, seed=seed, tools=tools, **kwargs)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    if http is None:
        server.run("stdio")  # what an env prints goes to standard error meanwhile: the SDK sees to it
        return
    port = http or _free_port(host)
    address = f"http://{host}:{port}/mcp"
    if ready is not None:
        ready(address)
    else:
        sys.stderr.write(f"{env_id} at {address} (Ctrl-C stops)\n")
        sys.stderr.flush()
    try:
        server.run("streamable-http", host=host, port=port)
    finally:
        episodes.close()


def _free_port(host: str) -> int:
    try:
        with socket.create_server((host, 0)) as held:
            return int(held.getsockname()[1])
    except OSError as err:
        raise EnvFailed(f"cannot listen on {host}: {err.strerror}") from err


class _told:  # noqa: N801  # reads as a statement
    """What is wrong with a call, in words the client's model reads; anything else is the server's own failure."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: object) -> None:
        if isinstance(err, UsageError | InfrastructureError):
            raise ToolError(str(err)) from err


def _answer(observation: Observation, facts: dict[str, Any], note: str | None) -> CallToolResult:
    blocks = [_block(part) for part in _parts(observation)]
    if note is not None:
        blocks.append(TextContent(type="text", text=note))
    return CallToolResult(content=blocks, structured_content=facts)


def _parts(observation: Observation) -> Sequence[Any]:
    return [{"type": "text", "text": observation}] if isinstance(observation, str) else observation


def _block(part: Any) -> ContentBlock:
    if part["type"] == "text":
        return TextContent(type="text", text=part["text"])
    raw: bytes = part["image"]
    kind = next((kind for start, kind in _PICTURES if raw.startswith(start)), "application/octet-stream")
    return ImageContent(type="image", data=base64.b64encode(raw).decode(), mime_type=kind)


def _plain(info: dict[str, Any]) -> Any:
    """What JSON can hold of an info."""
    return json.loads(json.dumps(info, default=repr))

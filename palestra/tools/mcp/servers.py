"""Parse the description of one or more MCP servers: a command line, a URL, or a configuration with `mcpServers`."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from palestra.errors import BadValue

_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_HTTP = ("http", "streamable-http", "streamable_http", "streamableHttp")
_LAUNCHERS = re.compile(r"python[\d.]*|node|npx|uvx?|pipx|bunx?|deno|docker")  # commands that start another program
_RUNNERS = {".py": sys.executable, ".js": "node", ".mjs": "node"}

Pairs: TypeAlias = tuple[tuple[str, str], ...]  # (name, value); hashable, unlike a dict


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A server that is started as a subprocess and reached over its standard input and output."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Pairs = ()  # added to PATH, HOME and a few other inherited variables
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A running server that is reached over streamable HTTP, or SSE for older servers."""

    name: str
    url: str
    headers: Pairs = ()
    sse: bool = False


Server: TypeAlias = StdioServer | HttpServer


def parse_servers(source: str | Path | Mapping[str, Any] | Sequence[str]) -> tuple[Server, ...]:
    """Parse a command line, a list of arguments, a URL, the path to a JSON file or its content."""
    if isinstance(source, Mapping):
        return _parse_config(source, "the configuration")
    if isinstance(source, Path):
        source = str(source)
    if not isinstance(source, str):
        return (_parse_command(list(source)),)
    text = source.strip()
    if text.startswith(("http://", "https://")):
        return (HttpServer(name=_host_name(text), url=text),)
    if text.endswith(".json"):
        return _parse_file(Path(text).expanduser())
    return (_parse_command(shlex.split(text)),)


def _parse_command(words: list[str]) -> StdioServer:
    if not words:
        raise BadValue("the mcp tool needs a command, an address or a JSON file, such as mcp:uvx mcp-server-time")
    runner = _RUNNERS.get(Path(words[0]).suffix)
    command, args = (runner, words) if runner else (words[0], words[1:])
    launched = args if _LAUNCHERS.fullmatch(Path(command).name) else []
    program = next((word for word in launched if not word.startswith("-") and word != "run"), command)
    name = re.sub(r"\W+", "_", Path(program).stem).strip("_") or "server"
    return StdioServer(name=name, command=command, args=tuple(args))


def _host_name(url: str) -> str:
    return re.sub(r"\W+", "_", url.split("://", 1)[1].split("/")[0].rpartition("@")[2]) or "server"


def _parse_file(path: Path) -> tuple[Server, ...]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise BadValue(f"the MCP configuration {path} cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise BadValue(f"the MCP configuration {path} is not valid JSON: {err}") from err
    if not isinstance(config, dict):
        raise BadValue(f"{path} must contain an object with `mcpServers`")
    return _parse_config(config, str(path))


def _parse_config(config: Mapping[str, Any], where: str) -> tuple[Server, ...]:
    if "command" in config or "url" in config:
        return (_parse_entry(str(config.get("name", "server")), config, where),)
    entries = config.get("mcpServers", config.get("servers"))
    if not isinstance(entries, Mapping):
        raise BadValue(f"{where} needs `mcpServers`, `command` or `url`")
    enabled = {
        name: entry for name, entry in entries.items() if not (isinstance(entry, dict) and entry.get("disabled"))
    }
    if not enabled:
        raise BadValue(f"{where} has no enabled server")
    return tuple(_parse_entry(str(name), entry, where) for name, entry in enabled.items())


def _parse_entry(name: str, entry: Any, where: str) -> Server:
    location = f"{where}: {name}"
    if not isinstance(entry, Mapping):
        raise BadValue(f"{location} must be an object with `command` or `url`")
    kind = entry.get("type", entry.get("transport"))
    if "url" in entry:
        if kind not in (None, "sse", *_HTTP):
            raise BadValue(f"{location}: `type` must be http or sse for a url, got {kind!r}")
        headers = _strings(entry.get("headers", {}), f"{location}: headers")
        return HttpServer(name=name, url=_substitute(entry["url"], location), headers=headers, sse=kind == "sse")
    if not isinstance(entry.get("command"), str) or kind not in (None, "stdio"):
        raise BadValue(f"{location} needs `command` (and `args`) or `url`")
    args = entry.get("args", [])
    if not isinstance(args, list):
        raise BadValue(f"{location}: `args` must be a list")
    return StdioServer(
        name=name,
        command=_substitute(entry["command"], location),
        args=tuple(_substitute(arg, location) for arg in args),
        env=_strings(entry.get("env", {}), f"{location}: env"),
        cwd=_substitute(entry["cwd"], location) if entry.get("cwd") else None,
    )


def _strings(values: Any, where: str) -> Pairs:
    if not isinstance(values, Mapping):
        raise BadValue(f"{where} must be an object")
    return tuple((str(name), _substitute(value, where)) for name, value in values.items())


def _substitute(value: Any, where: str) -> str:
    """Replace `${NAME}`, `${env:NAME}` and `${NAME:-default}` with the values of environment variables."""

    def variable(match: re.Match[str]) -> str:
        value = os.environ.get(match[1], match[2])
        if value is None:
            raise BadValue(f"{where}: the environment variable {match[1]} is not set")
        return value

    return _VARIABLE.sub(variable, str(value))

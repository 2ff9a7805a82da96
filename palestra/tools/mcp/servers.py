"""A command, an address, or the usual `mcpServers` JSON -> which MCP servers there are, and how each is reached."""

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
_LAUNCHERS = re.compile(r"python[\d.]*|node|npx|uvx?|pipx|bunx?|deno|docker")  # what they start is the server
_RUNNERS = {".py": sys.executable, ".js": "node", ".mjs": "node"}

Pairs: TypeAlias = tuple[tuple[str, str], ...]  # of names and values; hashable, unlike a dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server we start, and talk to over its standard input and output."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Pairs = ()  # beside PATH, HOME and the like; nothing else is passed on
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server that runs already, reached over streamable HTTP (or SSE, which came before)."""

    name: str
    url: str
    headers: Pairs = ()
    sse: bool = False


Server: TypeAlias = Program | Address


def servers_of(source: str | Path | Mapping[str, Any] | Sequence[str]) -> tuple[Server, ...]:
    """What `McpTools` takes: a command line, its words, an address, a JSON file, or what stands in one."""
    if isinstance(source, Mapping):
        return _of_config(source, "the configuration")
    if isinstance(source, Path):
        source = str(source)
    if not isinstance(source, str):
        return (_of_words(list(source)),)
    text = source.strip()
    if text.startswith(("http://", "https://")):
        return (Address(name=_named(text), url=text),)
    if text.endswith(".json"):
        return _of_file(Path(text).expanduser())
    return (_of_words(shlex.split(text)),)


def _of_words(words: list[str]) -> Program:
    if not words:
        raise BadValue("mcp needs a command, an address or a JSON file: mcp:uvx mcp-server-time, mcp:./servers.json")
    runner = _RUNNERS.get(Path(words[0]).suffix)
    command, args = (runner, words) if runner else (words[0], words[1:])
    launched = args if _LAUNCHERS.fullmatch(Path(command).name) else []
    said = next((word for word in launched if not word.startswith("-") and word != "run"), command)
    name = re.sub(r"\W+", "_", Path(said).stem).strip("_") or "server"
    return Program(name=name, command=command, args=tuple(args))


def _named(url: str) -> str:
    return re.sub(r"\W+", "_", url.split("://", 1)[1].split("/")[0].rpartition("@")[2]) or "server"


def _of_file(path: Path) -> tuple[Server, ...]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise BadValue(f"the MCP configuration {path} cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise BadValue(f"the MCP configuration {path} is no JSON: {err}") from err
    if not isinstance(found, dict):
        raise BadValue(f"{path} holds no object with `mcpServers`")
    return _of_config(found, str(path))


def _of_config(config: Mapping[str, Any], where: str) -> tuple[Server, ...]:
    if "command" in config or "url" in config:
        return (_of_entry(str(config.get("name", "server")), config, where),)
    entries = config.get("mcpServers", config.get("servers"))
    if not isinstance(entries, Mapping):
        raise BadValue(f"{where} has no `mcpServers`, and neither `command` nor `url`")
    wanted = {name: entry for name, entry in entries.items() if not (isinstance(entry, dict) and entry.get("disabled"))}
    if not wanted:
        raise BadValue(f"{where} names no server")
    return tuple(_of_entry(str(name), entry, where) for name, entry in wanted.items())


def _of_entry(name: str, entry: Any, where: str) -> Server:
    said = f"{where}: {name}"
    if not isinstance(entry, Mapping):
        raise BadValue(f"{said} is an object with `command` or `url`")
    kind = entry.get("type", entry.get("transport"))
    if "url" in entry:
        if kind not in (None, "sse", *_HTTP):
            raise BadValue(f"{said}: `type` is http or sse for a url, got {kind!r}")
        headers = _strings(entry.get("headers", {}), f"{said}: headers")
        return Address(name=name, url=_filled(entry["url"], said), headers=headers, sse=kind == "sse")
    if not isinstance(entry.get("command"), str) or kind not in (None, "stdio"):
        raise BadValue(f"{said} needs `command` (and `args`) or `url`")
    args = entry.get("args", [])
    if not isinstance(args, list):
        raise BadValue(f"{said}: `args` is a list")
    return Program(
        name=name,
        command=_filled(entry["command"], said),
        args=tuple(_filled(arg, said) for arg in args),
        env=_strings(entry.get("env", {}), f"{said}: env"),
        cwd=_filled(entry["cwd"], said) if entry.get("cwd") else None,
    )


def _strings(found: Any, where: str) -> Pairs:
    if not isinstance(found, Mapping):
        raise BadValue(f"{where} is an object")
    return tuple((str(name), _filled(value, where)) for name, value in found.items())


def _filled(value: Any, where: str) -> str:
    """The text with `${NAME}`, `${env:NAME}` and `${NAME:-default}` replaced by what the environment holds."""

    def variable(found: re.Match[str]) -> str:
        value = os.environ.get(found[1], found[2])
        if value is None:
            raise BadValue(f"{where}: the environment variable {found[1]} is not set")
        return value

    return _VARIABLE.sub(variable, str(value))

"""OpenAPI document and pages of one environment for OpenEnv's clients and its validator."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from palestra import __version__
from palestra.server.protocols.openenv_messages import SCHEMA

_RESULT = {
    "type": "object",
    "properties": {
        "observation": SCHEMA["observation"],
        "reward": {"type": ["number", "null"]},
        "done": {"type": "boolean"},
    },
}
_OPTIONAL_ID = {"episode_id": {"type": ["string", "null"], "description": "Omit it for one episode per client."}}
_STEP = {
    "type": "object",
    "properties": {
        "action": SCHEMA["action"],
        "request_id": {"type": ["string", "null"], "description": "A retry with the same id is not executed again."},
        "timeout_s": {"type": ["number", "null"]},
        **_OPTIONAL_ID,
    },
    "required": ["action"],
}
_RESET = {
    "type": "object",
    "properties": {"seed": {"type": ["integer", "null"], "minimum": 0}, **_OPTIONAL_ID},
    "additionalProperties": True,
}
_OBJECT = {"type": "object"}
# path -> method, summary, request schema, response schema
_OPERATIONS: dict[str, tuple[str, str, Any, Any]] = {
    "/reset": ("post", "Start an episode.", _RESET, _RESULT),
    "/step": ("post", "Take one action.", _STEP, _RESULT),
    "/state": ("get", "Return the state of the episode.", None, SCHEMA["state"]),
    "/close": ("post", "End an episode.", {"type": "object", "properties": _OPTIONAL_ID}, _OBJECT),
    "/schema": ("get", "Return the schemas of actions, observations and states.", None, _OBJECT),
    "/metadata": ("get", "Return the environment's name and description.", None, _OBJECT),
    "/health": ("get", "Return whether the server works.", None, _OBJECT),
    "/mcp": ("post", "Call the environment's tools over JSON-RPC.", _OBJECT, _OBJECT),
}


def openapi_document(env: str, description: str) -> dict[str, Any]:
    """Return the OpenAPI document, whose paths are relative to the environment's prefix."""
    return {
        "openapi": "3.1.0",
        "info": {"title": env, "version": __version__, "description": description},
        "servers": [{"url": "."}],
        "paths": {path: {method: _operation(path, *rest)} for path, (method, *rest) in _OPERATIONS.items()},
    }


def _operation(path: str, summary: str, request: Any, response: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": path.strip("/"),
        "summary": summary,
        "responses": {"200": {"description": "Success", "content": {"application/json": {"schema": response}}}},
    }
    if request is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": request}}}
    return operation


def docs_page(env: str, description: str) -> str:
    """Return a page that lists the operations."""
    rows = "".join(
        f"<h3><code>{method.upper()} {path}</code></h3><p>{escape(summary)}</p>"
        + "".join(
            f"<details><summary>{label}</summary><pre>{escape(json.dumps(schema, indent=2))}</pre></details>"
            for label, schema in (("Request", request), ("Response", response))
            if schema is not None
        )
        for path, (method, summary, request, response) in _OPERATIONS.items()
    )
    body = f"<h1>{escape(env)}</h1><p>{escape(description)}</p><p><a href='openapi.json'>openapi.json</a></p>{rows}"
    return _page(env, body)


def web_page(env: str, description: str) -> str:
    """Return a page on which a person can play an episode."""
    return _page(env, f"<h1>{escape(env)}</h1><p>{escape(description)}</p>{_PLAYER}")


def _page(title: str, body: str) -> str:
    style = "body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{white-space:pre-wrap}"
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{style}</style></head><body>{body}</body></html>"
    )


_PLAYER = """
<form id="start"><label>Seed <input id="seed" type="number" min="0" value="0"></label> <button>Reset</button></form>
<pre id="log" aria-live="polite"></pre>
<form id="act"><textarea id="action" rows="3" cols="60" aria-label="Action"></textarea><br><button>Step</button></form>
<script>
const log = document.getElementById("log");
const id = Math.random().toString(36).slice(2);
async function send(route, body) {
  const response = await fetch(route, {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({...body, episode_id: id})});
  const data = await response.json();
  if (!response.ok) { log.textContent += "\\n\\n" + data.detail; return; }
  log.textContent += "\\n\\n" + data.observation.text;
  if (data.reward !== null) log.textContent += "\\n[reward " + data.reward + (data.done ? ", done]" : "]");
}
document.getElementById("start").onsubmit = event => {
  event.preventDefault(); log.textContent = "";
  send("reset", {seed: Number(document.getElementById("seed").value)});
};
document.getElementById("act").onsubmit = event => {
  event.preventDefault();
  const text = document.getElementById("action");
  log.textContent += "\\n\\n> " + text.value;
  send("step", {action: {action: text.value}}); text.value = "";
};
</script>
"""

"""The protocol as an OpenAPI document, from the records themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from palestra import __version__
from palestra.serve import protocol
from palestra.serve.protocol import CODES, JSON, MSGPACK, PREFIX

_STEP = {
    "type": "object",
    "required": ["observation", "info"],
    "properties": {
        "seq": {"type": "integer", "description": "The number of the call that this answers."},
        "observation": {
            "description": "Text, or a list of parts: {type: text, text} and {type: image, image (base64 in JSON)}.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
        },
        "reward": {"type": ["number", "null"]},
        "terminated": {"type": "boolean"},
        "truncated": {"type": "boolean"},
        "info": {"type": "object"},
        "episode": {"type": "integer", "description": "With `autoreset`: the number of the running episode."},
    },
}
_SESSION = {
    "type": "object",
    "required": ["session", "env", "lease"],
    "properties": {
        "session": {"type": "string"},
        "env": {"type": "string"},
        "lease": {"type": "number"},
        "seq": {"type": "integer"},
        "busy": {"type": "boolean"},
        "max_turns": {"type": ["integer", "null"]},
        "reward_range": {"type": "array", "items": {"type": ["number", "null"]}},
        "expert_peeks": {"type": "boolean"},
        "spec": {"type": "object"},
    },
}
_COMMON = ("unauthorized", "wrong_host")
_BODY = ("bad_request", "too_large", "unsupported_media", "rate_limited", "capacity", "not_yet")
_OF_SESSION = ("unknown_session", "session_gone")
_IN_ENV = ("session_busy", "env_failed", "bad_value", "out_of_order", "episode_over", "reset_needed")


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    records = (
        protocol.Create,
        protocol.Reset,
        protocol.Step,
        protocol.Fork,
        protocol.Render,
        protocol.Advice,
        protocol.Close,
        protocol.Batch,
        protocol.Fault,
    )
    _, schemas = msgspec.json.schema_components(records, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():  # over HTTP the path says what is asked
        if "op" in schema.get("required", []):
            schema["required"].remove("op")
    schemas |= {"StepResult": _STEP, "SessionResult": _SESSION}
    schemas["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"$ref": "#/components/schemas/Fault"}},
    }
    session = {"name": "session", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 128}}
    of_session = f"{PREFIX}/sessions/{{session}}"
    paths: dict[str, Any] = {
        f"{PREFIX}/envs": {"get": _get("listEnvs", "What is served", {"type": "object"}, *_COMMON)},
        f"{PREFIX}/envs/{{env}}": {
            "get": {
                **_get("getEnv", "What is known of one environment", {"type": "object"}, "unknown_env", *_COMMON),
                "parameters": [{"name": "env", "in": "path", "required": True, "schema": {"type": "string"}}],
            }
        },
        f"{PREFIX}/sessions": {
            "post": _post(
                "createSession",
                protocol.Create,
                "SessionResult",
                "unknown_env",
                "bad_value",
                "env_failed",
                "quota",
                "draining",
                "unavailable",
                "session_gone",
                "session_busy",
                status="201",
            )
        },
        of_session: {
            "parameters": [session],
            "get": _get(
                "lookAtSession", "How a session stands", _ref("SessionResult"), *_OF_SESSION, *_LIMITS, *_COMMON
            ),
            "delete": _get("deleteSession", "End a session", {"type": "object"}, "unknown_session", *_LIMITS, *_COMMON),
        },
        f"{PREFIX}/batch": {"post": _post("batch", protocol.Batch, None)},
        "/health": {"get": _get("health", "The server runs", {"type": "object"}, "wrong_host")},
        "/ready": {
            "get": _get("ready", "It takes sessions", {"type": "object"}, "draining", "unavailable", "wrong_host")
        },
        "/metrics": {"get": _get("metrics", "Counters for Prometheus", None, *_COMMON)},
        "/openapi.json": {"get": _get("openapi", "This document", {"type": "object"}, *_COMMON)},
    }
    for what, record, result, more in (
        ("reset", protocol.Reset, "StepResult", _IN_ENV),
        ("step", protocol.Step, "StepResult", _IN_ENV),
        ("fork", protocol.Fork, "SessionResult", (*_IN_ENV, "quota", "draining")),
        ("render", protocol.Render, None, _IN_ENV),
        ("advice", protocol.Advice, None, _IN_ENV),
        ("close", protocol.Close, None, ()),
    ):
        paths[f"{of_session}/{what}"] = {
            "parameters": [session],
            "post": _post(what, record, result, *_OF_SESSION, *more),
        }
    codes = "\n".join(f"- `{code}` ({status}): {told}" for code, (status, told) in CODES.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palestra environments",
            "version": f"{protocol.VERSION} (palestra {__version__})",
            "description": "Sessions of environments. Errors carry one of these codes:\n\n" + codes + "\n\nThe same "
            f"records travel on the socket at {PREFIX}/ws, where `op` names what is asked and every answer has the "
            "`id` of its request: a message is one record or a list of them.",
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
        "paths": paths,
    }


_LIMITS = ("rate_limited", "capacity")


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answers(good: str, schema: dict[str, Any] | None, codes: tuple[str, ...]) -> dict[str, Any]:
    kinds = (JSON, MSGPACK) if schema is not None else ("text/plain",)
    found: dict[str, Any] = {
        good: {"description": "Done.", "content": {kind: {"schema": schema or {}} for kind in kinds}}
    }
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(CODES[code][0], []).append(code)
    for status, names in sorted(by_status.items()):
        found[str(status)] = {
            "description": "; ".join(f"{name}: {CODES[name][1]}" for name in dict.fromkeys(names)),
            "content": {kind: {"schema": _ref("Error")} for kind in (JSON, MSGPACK)},
        }
    return found


def _get(name: str, told: str, schema: dict[str, Any] | None, *codes: str) -> dict[str, Any]:
    return {"operationId": name, "summary": told, "responses": _answers("200", schema, (*codes, "not_allowed"))}


def _post(name: str, record: type, result: str | None, *codes: str, status: str = "200") -> dict[str, Any]:
    schema = _ref(result) if result is not None else {"type": "object"}
    body = {kind: {"schema": _ref(record.__name__)} for kind in (JSON, MSGPACK)}
    return {
        "operationId": name,
        "summary": (record.__doc__ or name).split("\n")[0],
        "requestBody": {"required": record in (protocol.Create, protocol.Step, protocol.Batch), "content": body},
        "responses": _answers(status, schema, (*codes, *_BODY, *_COMMON, "not_allowed")),
    }

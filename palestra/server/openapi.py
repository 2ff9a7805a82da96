"""OpenAPI document for the native protocol, generated from its message types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from palestra import __version__
from palestra.remote import protocol
from palestra.remote.protocol import CODES, JSON, MSGPACK, PREFIX

Schema: TypeAlias = dict[str, Any]

# Error codes for the different kinds of paths. _ANY applies to all paths.
_ANY = ("bad_request", "too_large", "too_slow", "wrong_host", "not_allowed")
_AUTH = ("unauthorized",)
_LIMITS = ("rate_limited", "capacity")
_BODY = ("unsupported_media", "not_yet", *_LIMITS)
_OF_SESSION = ("unknown_session", "session_gone", "not_found")
_IN_ENV = ("session_busy", "env_failed", "bad_value", "out_of_order", "id_reused", "episode_over", "reset_needed")
_OPENING = ("quota", "draining", "unavailable")

_SEQ = {"type": "integer", "minimum": 0, "description": "Sequence number of the call."}
_SESSION = {"type": "string", "description": "Name of the session."}


def _object(description: str, required: Sequence[str], **properties: Any) -> Schema:
    return {"type": "object", "description": description, "required": list(required), "properties": properties}


# Schemas for the response bodies.
_RESULTS: dict[str, Schema] = {
    "StepResult": _object(
        "Result of a reset or a step. A reset without `actions` has no reward.",
        ["seq", "observation", "info"],
        seq=_SEQ,
        observation={
            "description": "Text, or a list of parts: {type: text, text} and {type: image, image (base64 in JSON)}.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type"]}}],
        },
        reward={
            "type": ["number", "null"],
            "description": "null if the environment failed.",
        },
        terminated={"type": "boolean"},
        truncated={"type": "boolean"},
        info={"type": "object"},
        episode={"type": "integer", "description": "Number of the running episode. Only present with `autoreset`."},
    ),
    "Created": _object(
        "New session.",
        ["session", "env", "lease", "seq", "max_turns", "num_tasks", "reward_range", "expert_peeks", "spec"],
        session=_SESSION,
        env={"type": "string"},
        lease={"type": "number", "description": "Seconds after which an unused session ends."},
        seq={"type": "integer", "description": "Sequence number of the first call."},
        max_turns={"type": ["integer", "null"]},
        num_tasks={
            "type": ["integer", "null"],
            "description": "Number of tasks; seeds 0 to num_tasks - 1 cover each once. null if it is unlimited.",
        },
        reward_range={"type": "array", "items": {"type": ["number", "null"]}, "minItems": 2, "maxItems": 2},
        expert_peeks={"type": "boolean"},
        spec={"type": "object"},
    ),
    "Forked": _object(
        "New session with a copy of the episode.",
        ["seq", "session", "env", "lease"],
        seq=_SEQ,
        session=_SESSION,
        env={"type": "string"},
        lease={"type": "number"},
    ),
    "SessionStatus": _object(
        "State of a session.",
        ["session", "env", "lease", "seq", "busy"],
        session=_SESSION,
        env={"type": "string"},
        lease={"type": "number"},
        seq={"type": "integer", "description": "Sequence number of the next call."},
        busy={"type": "boolean", "description": "Whether a call is running."},
    ),
    "Closed": _object(
        "Ended session.",
        ["closed", "cause"],
        closed={"type": "boolean", "description": "Always true, even if the session had already ended."},
        cause={"type": "string", "description": "Reason why the session ended."},
    ),
    "Rendered": _object(
        "Rendered state of the environment.",
        ["mode", "render"],
        mode={"enum": ["text", "image"]},
        render={
            "type": ["string", "null"],
            "description": "Text or image (base64 in JSON); null if the environment does not support the mode.",
        },
    ),
    "SuggestedAction": _object(
        "Action suggested by one of the environment's built-in players.",
        ["action"],
        action={
            "type": ["string", "null"],
            "description": "null if the environment has no such player, or if the request contained a seed.",
        },
    ),
    "VectorStepResult": _object(
        "Results of a vector step, in the order in which they finished.",
        ["rows", "errors"],
        rows={
            "type": "array",
            "items": {
                "type": "array",
                "description": "[index of the step, observation, reward, terminated, truncated, info, episode]",
                "minItems": 7,
                "maxItems": 7,
            },
        },
        errors={
            "type": "array",
            "items": _object(
                "Step that failed.",
                ["index", "error"],
                index={"type": "integer", "minimum": 0},
                error={"$ref": "#/components/schemas/Fault"},
            ),
        },
    ),
    "BatchResult": _object(
        "One response per request, in the order of the requests.",
        ["responses"],
        responses={"type": "array", "items": {"$ref": "#/components/schemas/Response"}},
    ),
    "Envs": _object(
        "Served environments.",
        ["envs"],
        envs={
            "type": "array",
            "items": _object(
                "Served environment.", ["env", "summary"], env={"type": "string"}, summary={"type": "string"}
            ),
        },
    ),
    "Spec": _object("Specification of an environment.", ["id", "entry_point", "kwargs"], id={"type": "string"}),
    "ServerStatus": _object("State of the server.", ["status"], status={"type": "string"}),
    "Error": _object("Error response.", ["error"], error={"$ref": "#/components/schemas/Fault"}),
}
_BODY_REQUIRED = (protocol.Create, protocol.Step, protocol.Steps, protocol.SuggestAction, protocol.Batch)
_RETRY_AFTER = {"description": "Seconds to wait before a retry.", "schema": {"type": "integer", "minimum": 1}}


def openapi_document(envs: Sequence[str] = ()) -> Schema:
    """Return the OpenAPI 3.1 document. `envs` are used as examples of environment ids."""
    operations = (
        ("reset", protocol.Reset, "StepResult", _IN_ENV),
        ("step", protocol.Step, "StepResult", _IN_ENV),
        ("fork", protocol.Fork, "Forked", (*_IN_ENV, *_OPENING)),
        ("render", protocol.Render, "Rendered", _IN_ENV),
        ("suggest_action", protocol.SuggestAction, "SuggestedAction", _IN_ENV),
        ("close", protocol.Close, "Closed", ()),
    )
    records = [
        protocol.Create,
        *(record for _, record, _, _ in operations),
        protocol.Steps,
        protocol.Batch,
        protocol.Response,
    ]
    _, schemas = msgspec.json.schema_components(records, ref_template="#/components/schemas/{name}")
    if envs:
        schemas["Create"]["properties"]["env"]["examples"] = list(envs[:20])
    for record in records[:-2]:
        schemas[f"{record.__name__}Body"] = _body_of(schemas[record.__name__])
    schemas["Fault"]["properties"]["code"]["enum"] = list(CODES)
    schemas |= _RESULTS
    session = {"name": "session", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 128}}
    env = {"name": "env", "in": "path", "required": True, "schema": {"type": "string", "examples": list(envs[:20])}}
    of_session = f"{PREFIX}/sessions/{{session}}"
    opening = ("unknown_env", "bad_value", "env_failed", "session_gone", "session_busy", "id_reused", *_OPENING)
    create = _post("createSession", protocol.Create, "CreateBody", "Created", *opening, status="201")
    create["responses"]["201"]["links"] = {
        name: {"operationId": name, "parameters": {"session": "$response.body#/session"}}
        for name in ("getSession", "deleteSession", *(name for name, *_ in operations))
    }
    common = (*_AUTH, *_LIMITS)
    paths: Schema = {
        f"{PREFIX}/envs": {"get": _get("listEnvs", "List the served environments", "Envs", *_AUTH)},
        f"{PREFIX}/envs/{{env}}": {
            "parameters": [env],
            "get": _get("getEnv", "Return the specification of an environment", "Spec", "unknown_env", *_AUTH),
        },
        f"{PREFIX}/sessions": {"post": create},
        of_session: {
            "parameters": [session],
            "get": _get(
                "getSession",
                "Return the state of a session and renew its lease",
                "SessionStatus",
                *_OF_SESSION,
                *common,
            ),
            "delete": _get("deleteSession", "End a session", "Closed", *_OF_SESSION, *common),
        },
        f"{PREFIX}/steps": {"post": _post("stepMany", protocol.Steps, "StepsBody", "VectorStepResult")},
        f"{PREFIX}/batch": {"post": _post("batch", protocol.Batch, "Batch", "BatchResult")},
        "/health": {"get": _get("health", "Check that the server is running", "ServerStatus")},
        "/ready": {"get": _get("ready", "Check that sessions are accepted", "ServerStatus", "draining", "unavailable")},
        "/metrics": {"get": _get("metrics", "Return metrics in the Prometheus text format", None, *_AUTH)},
        "/openapi.json": {"get": _get("openapi", "Return this document", "", *_AUTH)},
    }
    for operation, record, result, errors in operations:
        body = f"{record.__name__}Body"
        paths[f"{of_session}/{operation}"] = {
            "parameters": [session],
            "post": _post(operation, record, body, result, *_OF_SESSION, *errors),
        }
    for path in ("/health", "/ready"):
        paths[path]["get"]["security"] = []
    codes = "\n".join(f"- `{code}` ({status}): {meaning}" for code, (status, meaning) in CODES.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palestra environments",
            "version": f"{protocol.VERSION} (palestra {__version__})",
            "description": f"Environments as a service. Every error has one of these codes:\n\n{codes}\n\n"
            f"The WebSocket at {PREFIX}/ws accepts the same requests with two more fields: `op` (the operation) and "
            "`session`. A message contains one request or a list of requests. Text messages are JSON, binary messages "
            "are msgpack. Every response contains the `id` of its request. Over HTTP, the id can also be sent in the "
            "X-Request-Id header.",
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],  # a server on a loopback address may run without tokens
        "paths": paths,
    }


def _body_of(record: Schema) -> Schema:
    """Return the schema for an HTTP body. Operation and session are omitted because the path contains them."""
    properties = {name: schema for name, schema in record["properties"].items() if name not in ("op", "session")}
    required = [name for name in record["required"] if name != "op"]
    return {**record, "title": f"{record['title']}Body", "properties": properties, "required": required}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"} if name else {"type": "object"}


def _responses(success: str, result: str | None, codes: tuple[str, ...]) -> Schema:
    """Describe the responses for a path. `result` is the name of a schema, "" for any object, or None for text."""
    if result is None:
        content: Schema = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {kind: {"schema": _ref(result)} for kind in ((JSON, MSGPACK) if result else (JSON,))}
    responses: Schema = {success: {"description": "Success.", "content": content}}
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    for status, names in sorted(by_status.items()):
        responses[str(status)] = {
            "description": "; ".join(f"{name}: {CODES[name][1]}" for name in names),
            "content": {kind: {"schema": _ref("Error")} for kind in (JSON, MSGPACK)},
        }
        if status in (429, 503, 504):
            responses[str(status)]["headers"] = {"Retry-After": _RETRY_AFTER}
        elif status == 401:
            responses["401"]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
        elif status == 405:
            responses["405"]["headers"] = {"Allow": {"schema": {"type": "string"}, "required": True}}
    return responses


def _get(name: str, summary: str, result: str | None, *codes: str) -> Schema:
    return {"operationId": name, "summary": summary, "responses": _responses("200", result, (*codes, *_ANY))}


def _post(name: str, record: type, body: str, result: str, *codes: str, status: str = "200") -> Schema:
    return {
        "operationId": name,
        "summary": (record.__doc__ or name).split("\n")[0],
        "requestBody": {
            "required": record in _BODY_REQUIRED,
            "content": {kind: {"schema": _ref(body)} for kind in (JSON, MSGPACK)},
        },
        "responses": _responses(status, result, (*codes, *_BODY, *_AUTH, *_ANY)),
    }

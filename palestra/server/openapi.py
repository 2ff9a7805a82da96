"""The protocol as an OpenAPI document, from the records themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from palestra import __version__
from palestra.remote import protocol
from palestra.remote.protocol import CODES, JSON, MSGPACK, PREFIX

Schema: TypeAlias = dict[str, Any]

# Which errors an address can answer. The first are of any request: a connection is refused before it has an address.
_ANY = ("bad_request", "too_large", "too_slow", "wrong_host", "not_allowed")
_KNOWN = ("unauthorized",)
_LIMITS = ("rate_limited", "capacity")
_BODY = ("unsupported_media", "not_yet", *_LIMITS)
_OF_SESSION = ("unknown_session", "session_gone", "not_found")
_IN_ENV = ("session_busy", "env_failed", "bad_value", "out_of_order", "id_reused", "episode_over", "reset_needed")
_OPENING = ("quota", "draining", "unavailable")

_NUMBER = {"type": "integer", "minimum": 0, "description": "The number of the call that this answers."}
_NAME = {"type": "string", "description": "Of the session."}


def _object(told: str, required: Sequence[str], **properties: Any) -> Schema:
    return {"type": "object", "description": told, "required": list(required), "properties": properties}


# What is answered, by name.
_RESULTS: dict[str, Schema] = {
    "StepResult": _object(
        "What a reset or a step led to; a reset that plays no actions has no reward.",
        ["seq", "observation", "info"],
        seq=_NUMBER,
        observation={
            "description": "Text, or a list of parts: {type: text, text} and {type: image, image (base64 in JSON)}.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type"]}}],
        },
        reward={"type": ["number", "null"], "description": "null: the episode broke, or the number is none."},
        terminated={"type": "boolean"},
        truncated={"type": "boolean"},
        info={"type": "object"},
        episode={"type": "integer", "description": "With `autoreset`: the number of the running episode."},
    ),
    "Created": _object(
        "A session.",
        ["session", "env", "lease", "seq", "max_turns", "reward_range", "expert_peeks", "spec"],
        session=_NAME,
        env={"type": "string"},
        lease={"type": "number", "description": "Seconds without use after which it ends."},
        seq={"type": "integer", "description": "The number of its first call."},
        max_turns={"type": ["integer", "null"]},
        reward_range={"type": "array", "items": {"type": ["number", "null"]}, "minItems": 2, "maxItems": 2},
        expert_peeks={"type": "boolean"},
        spec={"type": "object"},
    ),
    "Forked": _object(
        "A session with a copy of the episode.",
        ["seq", "session", "env", "lease"],
        seq=_NUMBER,
        session=_NAME,
        env={"type": "string"},
        lease={"type": "number"},
    ),
    "Looked": _object(
        "How a session stands.",
        ["session", "env", "lease", "seq", "busy"],
        session=_NAME,
        env={"type": "string"},
        lease={"type": "number"},
        seq={"type": "integer", "description": "The number of its next call."},
        busy={"type": "boolean", "description": "Is a call under way?"},
    ),
    "Closed": _object(
        "A session that has ended.",
        ["closed", "cause"],
        closed={"type": "boolean", "description": "true, whether it had ended before or not."},
        cause={"type": "string", "description": "How it ended."},
    ),
    "Rendered": _object(
        "What people look at.",
        ["mode", "render"],
        mode={"enum": ["text", "image"]},
        render={"type": ["string", "null"], "description": "Text, or a picture (base64 in JSON); null: no such view."},
    ),
    "Advised": _object(
        "What a player would do.",
        ["action"],
        action={"type": ["string", "null"], "description": "null: there is no such player, or it was seeded."},
    ),
    "Stepped": _object(
        "What came of a vector's step; rows come as they were done.",
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
                "A step that has no row.",
                ["index", "error"],
                index={"type": "integer", "minimum": 0},
                error={"$ref": "#/components/schemas/Fault"},
            ),
        },
    ),
    "Answers": _object(
        "One answer a request, in their order.",
        ["answers"],
        answers={"type": "array", "items": {"$ref": "#/components/schemas/Response"}},
    ),
    "Envs": _object(
        "What is served.",
        ["envs"],
        envs={
            "type": "array",
            "items": _object("One of them.", ["env", "summary"], env={"type": "string"}, summary={"type": "string"}),
        },
    ),
    "Spec": _object("What is known of an environment.", ["id", "entry_point", "kwargs"], id={"type": "string"}),
    "Status": _object("How the server is.", ["status"], status={"type": "string"}),
    "Error": _object("Why not.", ["error"], error={"$ref": "#/components/schemas/Fault"}),
}
_BODIED = (protocol.Create, protocol.Step, protocol.Steps, protocol.SuggestAction, protocol.Batch)
_RETRY = {"description": "Seconds to wait, a whole number.", "schema": {"type": "integer", "minimum": 1}}


def document(envs: Sequence[str] = ()) -> Schema:
    """OpenAPI 3.1; `envs` are given as examples."""
    calls = (
        ("reset", protocol.Reset, "StepResult", _IN_ENV),
        ("step", protocol.Step, "StepResult", _IN_ENV),
        ("fork", protocol.Fork, "Forked", (*_IN_ENV, *_OPENING)),
        ("render", protocol.Render, "Rendered", _IN_ENV),
        ("suggest_action", protocol.SuggestAction, "Advised", _IN_ENV),
        ("close", protocol.Close, "Closed", ()),
    )
    records = [
        protocol.Create,
        *(record for _, record, _, _ in calls),
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
        what: {"operationId": what, "parameters": {"session": "$response.body#/session"}}
        for what in ("lookAtSession", "deleteSession", *(what for what, *_ in calls))
    }
    known = (*_KNOWN, *_LIMITS)
    paths: Schema = {
        f"{PREFIX}/envs": {"get": _get("listEnvs", "What is served", "Envs", *_KNOWN)},
        f"{PREFIX}/envs/{{env}}": {
            "parameters": [env],
            "get": _get("getEnv", "What is known of one environment", "Spec", "unknown_env", *_KNOWN),
        },
        f"{PREFIX}/sessions": {"post": create},
        of_session: {
            "parameters": [session],
            "get": _get("lookAtSession", "How a session stands", "Looked", *_OF_SESSION, *known),
            "delete": _get("deleteSession", "End a session", "Closed", *_OF_SESSION, *known),
        },
        f"{PREFIX}/steps": {"post": _post("stepMany", protocol.Steps, "StepsBody", "Stepped")},
        f"{PREFIX}/batch": {"post": _post("batch", protocol.Batch, "Batch", "Answers")},
        "/health": {"get": _get("health", "The server runs", "Status")},
        "/ready": {"get": _get("ready", "It takes sessions", "Status", "draining", "unavailable")},
        "/metrics": {"get": _get("metrics", "Counters for Prometheus", None, *_KNOWN)},
        "/openapi.json": {"get": _get("openapi", "This document", "", *_KNOWN)},
    }
    for what, record, result, codes in calls:
        body = f"{record.__name__}Body"
        paths[f"{of_session}/{what}"] = {
            "parameters": [session],
            "post": _post(what, record, body, result, *_OF_SESSION, *codes),
        }
    for path in ("/health", "/ready"):
        paths[path]["get"]["security"] = []
    codes_told = "\n".join(f"- `{code}` ({status}): {told}" for code, (status, told) in CODES.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palestra environments",
            "version": f"{protocol.VERSION} (palestra {__version__})",
            "description": f"Sessions of environments. Errors carry one of these codes:\n\n{codes_told}\n\n"
            f"The same records travel on the socket at {PREFIX}/ws, where `op` names what is asked, `session` whose it "
            "is, and every answer has the `id` of its request: a message is one record or a list of them, JSON in text "
            "messages and msgpack in binary ones. A request's id can also stand in X-Request-Id, which is sent back.",
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],  # a server for one machine asks for none
        "paths": paths,
    }


def _body_of(record: Schema) -> Schema:
    """A record as HTTP has it: the address says what is asked, and of which session."""
    left = {name: schema for name, schema in record["properties"].items() if name not in ("op", "session")}
    required = [name for name in record["required"] if name != "op"]
    return {**record, "title": f"{record['title']}Body", "properties": left, "required": required}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"} if name else {"type": "object"}


def _answers(good: str, result: str | None, codes: tuple[str, ...]) -> Schema:
    """`result`: the name of a schema; "" for any object, None for text."""
    if result is None:
        content: Schema = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {kind: {"schema": _ref(result)} for kind in ((JSON, MSGPACK) if result else (JSON,))}
    found: Schema = {good: {"description": "Done.", "content": content}}
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    for status, names in sorted(by_status.items()):
        found[str(status)] = {
            "description": "; ".join(f"{name}: {CODES[name][1]}" for name in names),
            "content": {kind: {"schema": _ref("Error")} for kind in (JSON, MSGPACK)},
        }
        if status in (429, 503, 504):
            found[str(status)]["headers"] = {"Retry-After": _RETRY}
        elif status == 401:
            found["401"]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
        elif status == 405:
            found["405"]["headers"] = {"Allow": {"schema": {"type": "string"}, "required": True}}
    return found


def _get(name: str, told: str, result: str | None, *codes: str) -> Schema:
    return {"operationId": name, "summary": told, "responses": _answers("200", result, (*codes, *_ANY))}


def _post(name: str, record: type, body: str, result: str, *codes: str, status: str = "200") -> Schema:
    return {
        "operationId": name,
        "summary": (record.__doc__ or name).split("\n")[0],
        "requestBody": {
            "required": record in _BODIED,
            "content": {kind: {"schema": _ref(body)} for kind in (JSON, MSGPACK)},
        },
        "responses": _answers(status, result, (*codes, *_BODY, *_KNOWN, *_ANY)),
    }

"""Evaluate typed answers and the browser's requests with the `webarena-verified` package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from palestra.browser.sites import Request, Response
from palestra.envs.webarena.tasks import FILES, ArenaTask
from palestra.errors import EnvFailed, MissingExtra

FORMAT = (
    'Answer with JSON in `stop [...]`: {"task_type": "RETRIEVE" | "MUTATE" | "NAVIGATE", "status": "SUCCESS" | '
    '"NOT_FOUND_ERROR" | "ACTION_NOT_ALLOWED_ERROR" | "PERMISSION_DENIED_ERROR" | "DATA_VALIDATION_ERROR" | '
    '"UNKNOWN_ERROR", "retrieved_data": [items] | null, "error_details": text | null}.'
)
MAX_TEXT = 100_000  # maximum number of recorded characters per response


def network_events(requests: Iterable[tuple[Request, Response]]) -> list[dict[str, Any]]:
    """Return requests and their responses as entries of an HTTP archive (HAR)."""
    return [_event(request, response) for request, response in requests]


def _event(request: Request, response: Response) -> dict[str, Any]:
    given = {name.lower(): value for name, value in request.headers.items()}
    received = {name.lower(): value for name, value in response.headers}
    event: dict[str, Any] = {
        "request": {"method": request.method, "url": request.url, "headers": _headers(request.headers.items())},
        "response": {
            "status": response.status,
            "headers": _headers(response.headers),
            "cookies": [_cookie(value) for name, value in response.headers if name.lower() == "set-cookie"],
            "redirectURL": received.get("location", ""),
            "content": {"mimeType": received.get("content-type", ""), "text": _text(response.body)},
        },
    }
    if request.body:
        event["request"]["postData"] = {"mimeType": given.get("content-type", ""), "text": _text(request.body)}
    return event


def _headers(headers: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _cookie(header: str) -> dict[str, str]:
    name, _, value = header.partition(";")[0].partition("=")
    return {"name": name.strip(), "value": value.strip()}


def _text(body: bytes) -> str:
    return body[:MAX_TEXT].decode("utf-8", "replace")


def evaluate(
    task: ArenaTask, answer: str, requests: Iterable[tuple[Request, Response]], urls: Mapping[str, str]
) -> bool:
    """Return whether the package's evaluators accept the final state of the episode."""
    try:
        from webarena_verified.api import WebArenaVerified
        from webarena_verified.types.config import WebArenaVerifiedConfig
    except ImportError as err:
        raise MissingExtra(f"the evaluators are not installed. Install them with: {FILES['verified'][2]}") from err
    environments = {f"__{name.upper()}__": {"urls": [url]} for name, url in urls.items() if name in task.sites}
    try:
        response: Any = json.loads(answer)
    except ValueError:
        response = answer
    arena = WebArenaVerified(config=WebArenaVerifiedConfig(environments=environments))
    result = arena.evaluate_task(task_id=task.id, agent_response=response, network_trace=network_events(requests))
    if str(result.status).lower().endswith("error"):
        raise EnvFailed(f"webarena-verified could not evaluate task {task.id}: {result.error_msg}")
    return bool(result.score == 1.0)

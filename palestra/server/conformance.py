"""Check over the network that a server implements the protocol correctly.

The server can be any implementation of the protocol. The first violation is reported with its request and response.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from palestra.errors import BadValue, ConformanceError
from palestra.optional import require
from palestra.remote.protocol import CODES, JSON, MSGPACK, OUTCOME, PREFIX

STEP_FIELDS = OUTCOME[:5]  # excludes `episode`, which only sessions with autoreset return


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """HTTP response with its decoded body."""

    status: int
    body: Any
    raw: bytes
    headers: dict[str, str]

    @property
    def code(self) -> str:
        """Error code in the response, or "" if the request succeeded."""
        return self.body.get("error", {}).get("code", "") if isinstance(self.body, dict) else ""

    @property
    def without_seq(self) -> dict[str, Any]:
        return {name: value for name, value in self.body.items() if name != "seq"}


class Client:
    """HTTP client that stores its last request for error messages."""

    def __init__(self, base: str, env: str, token: str | None) -> None:
        parts = urlsplit(base)
        if parts.scheme != "http" or not parts.netloc:
            raise BadValue(f"the server URL must be http://HOST:PORT, got {base!r}")
        self.host, self.path = parts.netloc, parts.path.rstrip("/")
        self.base, self.env = base.rstrip("/"), env
        self.token = token
        self.last_request = ""

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        token: str | None = None,
        raw: bytes | None = None,
    ) -> Response:
        """Send a request whose body is either `body`, encoded as `content_type`, or the bytes `raw`."""
        headers = {"Accept": accept}
        used_token = self.token if token is None else token
        if used_token:
            headers["Authorization"] = f"Bearer {used_token}"
        data = raw
        if body is not None:
            data = msgspec.msgpack.encode(body) if content_type == MSGPACK else json.dumps(body).encode()
        if data is not None and content_type:
            headers["Content-Type"] = content_type
        self.last_request = f"{method} {path} {'' if data is None else data[:200]!r}"
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, self.path + path, data, headers)
            response = connection.getresponse()
            received = response.read()
            status = response.status
            received_headers = {name.lower(): value for name, value in response.headers.items()}
        finally:
            connection.close()
        decode = msgspec.msgpack.decode if MSGPACK in received_headers.get("content-type", "") else msgspec.json.decode
        try:
            value: Any = decode(received)
        except msgspec.DecodeError:
            value = received
        return Response(status=status, body=value, raw=received, headers=received_headers)

    def open(self, **fields: Any) -> str:
        """Create a session and return its name."""
        response = self.send("POST", f"{PREFIX}/sessions", {"env": self.env, **fields})
        created = response.status == 201 and isinstance(response.body, dict)
        self.require(created, "sessions", "creating a session must return 201", response)
        return str(response.body["session"])

    def call(self, session: str, operation: str, **fields: Any) -> Response:
        return self.send("POST", f"{PREFIX}/sessions/{session}/{operation}", fields)

    def close(self, *sessions: str) -> None:
        for session in sessions:
            self.send("DELETE", f"{PREFIX}/sessions/{session}")

    def random_action(self, session: str) -> str:
        response = self.call(session, "suggest_action", player="random")
        return str(response.body["action"]) if response.status == 200 else "x"

    def require(self, holds: bool, invariant: str, expected: str, response: Response) -> None:
        """Raise ConformanceError with the last request and its response if `holds` is False."""
        if not holds:
            received = f"{response.status} {response.raw[:300]!r}"
            raise ConformanceError(invariant, f"{expected}; the response was {received}", f"    {self.last_request}")


def check_health(client: Client) -> None:
    """Check that /health and /ready return 200 without a token and that /openapi.json returns a document."""
    for path in ("/health", "/ready"):
        response = client.send("GET", path, token="")
        client.require(response.status == 200, "health", f"{path} must return 200", response)
    response = client.send("GET", "/openapi.json")
    served = response.status == 200 and "paths" in response.body
    client.require(served, "openapi", "/openapi.json must return the OpenAPI document", response)


def check_token(client: Client) -> None:
    """Check that requests with an invalid token are refused, if the server requires a token."""
    if client.token is None:
        return
    for wrong in ("x", client.token[:-1], client.token + "x"):
        response = client.send("GET", f"{PREFIX}/envs", token=wrong)
        refused = response.status == 401 and response.code == "unauthorized"
        client.require(refused, "token", "a wrong token must be refused", response)


def check_determinism(client: Client) -> None:
    """Check that replaying the same seed and actions returns the same results."""
    session = client.open()
    first = client.call(session, "reset", seed=11)
    valid = first.status == 200 and "observation" in first.body
    client.require(valid, "reset", "reset must return an observation", first)
    step = client.call(session, "step", action=client.random_action(session))
    valid = step.status == 200 and step.body.keys() >= {*STEP_FIELDS}
    client.require(valid, "step", f"step must return {', '.join(STEP_FIELDS)}", step)
    for seed in range(20, 32):
        client.call(session, "reset", seed=seed)
        actions = [client.random_action(session) for _ in range(3)]
        results = []
        for _ in range(2):
            response = client.call(session, "reset", seed=seed, actions=actions)
            results.append((response.status, response.body.get("observation"), response.body.get("reward")))
        same = results[0] == results[1]
        client.require(same, "seeds", f"seed {seed} and actions {actions} must always have the same result", response)
    client.close(session)


def check_retry(client: Client) -> None:
    """Check that a step that is retried with the same id and sequence number is executed only once."""
    session, reference = client.open(), client.open()
    client.call(session, "reset", seed=5, id="r", seq=0)
    client.call(reference, "reset", seed=5)
    action = client.random_action(session)
    first = client.call(session, "step", action=action, id="s", seq=1)
    second = client.call(session, "step", action=action, id="s", seq=1)
    client.require(first.raw == second.raw, "exactly once", "a retry must return the same response", second)
    client.call(reference, "step", action=action)
    if not (first.body.get("terminated") or first.body.get("truncated")):
        next_step = client.call(session, "step", action=action, id="t", seq=2)
        expected = client.call(reference, "step", action=action)
        same = next_step.without_seq == expected.without_seq
        client.require(same, "exactly once", "a retry must not execute the step again", next_step)
    client.close(session, reference)


def check_create_retry(client: Client) -> None:
    """Check that retrying the creation of a session with the same id does not open a second session."""
    body = {"env": client.env, "id": f"conformance-{os.urandom(6).hex()}"}
    first = client.send("POST", f"{PREFIX}/sessions", body)
    second = client.send("POST", f"{PREFIX}/sessions", body)
    same = first.status == 201 and second.body.get("session") == first.body.get("session")
    client.require(same, "exactly once", "retrying the creation of a session must return the same session", second)
    client.close(first.body["session"])


def check_order(client: Client) -> None:
    """Check that a call with a wrong sequence number or a reused id is refused."""
    session = client.open()
    client.call(session, "reset", seed=1, id="a", seq=0)
    for seq in (0, 7):
        response = client.call(session, "step", action="x", id=f"wrong{seq}", seq=seq)
        refused = response.status == 409 and response.code == "out_of_order"
        refused = refused and response.body["error"].get("expected") == 1
        client.require(refused, "order", f"seq {seq} must be refused with an error in which `expected` is 1", response)
    for operation in ("fork", "step"):
        fields = {"action": "x"} if operation == "step" else {}
        response = client.call(session, operation, id="a", **fields)
        refused = response.status == 409 and response.code == "id_reused"
        client.require(refused, "order", f"a {operation} that reuses the id of a reset must be refused", response)
    client.close(session)


def check_concurrency(client: Client) -> None:
    """Check that only one of several concurrent calls with the same sequence number is accepted."""
    session = client.open()
    client.call(session, "reset", seed=2, id="a", seq=0)
    action = client.random_action(session)
    responses: list[Response] = []

    def step(number: int) -> None:
        own = Client(client.base, client.env, client.token)
        responses.append(own.call(session, "step", action=action, id=f"c{number}", seq=1))

    threads = [threading.Thread(target=step, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    accepted = [r for r in responses if r.status == 200]
    allowed = ("out_of_order", "session_busy")
    wrong = next((r for r in responses if r.status != 200 and r.code not in allowed), None)
    one = len(accepted) == 1 and wrong is None
    expected = "exactly one of eight calls with the same sequence number must be accepted"
    client.require(one, "one at a time", expected, wrong or responses[0])
    client.close(session)


def check_close(client: Client) -> None:
    """Check that a session can be closed twice, and that steps in closed and unknown sessions are refused."""
    session = client.open()
    for _ in range(2):
        response = client.call(session, "close")
        client.require(response.status == 200, "close", "closing a session twice must succeed", response)
    response = client.call(session, "step", action="x")
    gone = response.status == 410 and response.code == "session_gone"
    gone = gone and response.body["error"].get("cause") == "closed"
    client.require(gone, "close", "a step in a closed session must return 410 with the cause `closed`", response)
    response = client.call("unknown", "step", action="x")
    unknown = response.status == 404 and response.code == "unknown_session"
    client.require(unknown, "sessions", "a step in an unknown session must return 404", response)


def check_episodes(client: Client) -> None:
    """Check that steps before the first reset and after the end of an episode are refused."""
    session = client.open()
    response = client.call(session, "step", action="x")
    refused = response.status == 409 and response.code == "reset_needed"
    client.require(refused, "episodes", "a step before the first reset must be refused", response)
    client.call(session, "reset", seed=3)
    for _ in range(300):
        response = client.call(session, "step", action=client.random_action(session))
        if response.status != 200 or response.body["terminated"] or response.body["truncated"]:
            break
    else:
        client.close(session)
        return  # the episode is too long to play to its end
    response = client.call(session, "step", action="x")
    refused = response.status == 409 and response.code == "episode_over"
    client.require(refused, "episodes", "a step after the end of the episode must be refused", response)
    client.close(session)


def check_fork(client: Client) -> None:
    """Check that a fork continues the same episode and stays open when the original session is closed."""
    session = client.open()
    client.call(session, "reset", seed=4)
    action = client.random_action(session)
    response = client.call(session, "fork")
    forked = response.status == 200 and "session" in response.body
    client.require(forked, "fork", "fork must return a session", response)
    fork = response.body["session"]
    original, copy = client.call(session, "step", action=action), client.call(fork, "step", action=action)
    same = original.without_seq == copy.without_seq
    client.require(same, "fork", "an action must have the same result in the fork and the original", copy)
    client.close(session)
    response = client.send("GET", f"{PREFIX}/sessions/{fork}")
    client.require(response.status == 200, "fork", "a fork must stay open when the original is closed", response)
    client.close(fork)


def check_msgpack(client: Client) -> None:
    """Check that the server accepts msgpack and returns the same observation in msgpack as in JSON."""
    json_session, msgpack_session = client.open(), client.open()
    plain = client.call(json_session, "reset", seed=6)
    path = f"{PREFIX}/sessions/{msgpack_session}/reset"
    packed = client.send("POST", path, {"seed": 6}, content_type=MSGPACK, accept=MSGPACK)
    is_msgpack = packed.headers.get("content-type", "").startswith(MSGPACK)
    client.require(is_msgpack, "msgpack", "the response must be encoded as msgpack", packed)
    same = packed.body.get("observation") == plain.body["observation"]
    client.require(same, "msgpack", "the observation must be the same in msgpack as in JSON", packed)
    client.close(json_session, msgpack_session)


def check_batch(client: Client) -> None:
    """Check that a batch returns its responses in order, and that an error affects only its own request."""
    sessions = [client.open() for _ in range(3)]
    requests: list[dict[str, Any]] = [{"op": "reset", "session": s, "seed": 1, "id": s} for s in sessions]
    requests.insert(1, {"op": "step", "session": "unknown", "action": "x", "id": "bad"})
    response = client.send("POST", f"{PREFIX}/batch", {"requests": requests})
    items = response.body.get("responses", []) if isinstance(response.body, dict) else []
    in_order = response.status == 200 and [item.get("id") for item in items] == [r["id"] for r in requests]
    client.require(in_order, "batch", "responses must be in the order of the requests", response)
    codes = [item.get("error", {}).get("code", "ok") for item in items]
    independent = codes == ["ok", "unknown_session", "ok", "ok"]
    client.require(independent, "batch", "an error must affect only its own request", response)
    client.close(*sessions)


def check_vector_step(client: Client) -> None:
    """Check that a vector step returns the same results as single steps, even if it is retried."""
    sessions, references = [client.open() for _ in range(3)], [client.open() for _ in range(3)]
    for number, session in enumerate((*sessions, *references)):
        client.call(session, "reset", seed=number % 3, seq=0)
    actions = [client.random_action(session) for session in sessions]
    steps = [[session, 1, action] for session, action in zip(sessions, actions, strict=True)]
    response = client.send("POST", f"{PREFIX}/steps", {"id": "v", "steps": [*steps, ["unknown", 1, "x"]]})
    rows = sorted(response.body.get("rows", [])) if isinstance(response.body, dict) else []
    complete = response.status == 200 and [row[0] for row in rows] == [0, 1, 2]
    client.require(complete, "vector", "the response must contain one row per successful step", response)
    errors = [(item.get("index"), item.get("error", {}).get("code")) for item in response.body.get("errors", [])]
    client.require(
        errors == [(3, "unknown_session")], "vector", "a failed step must be reported with its index", response
    )
    for row, reference, action in zip(rows, references, actions, strict=True):
        single = client.call(reference, "step", action=action, seq=1)
        expected = [single.body.get(name) for name in STEP_FIELDS]
        client.require(
            row[1:6] == expected, "vector", f"a row must equal the single step's result {expected}", response
        )
    retry = client.send("POST", f"{PREFIX}/steps", {"id": "v", "steps": steps})
    client.require(sorted(retry.body["rows"]) == rows, "vector", "a retry must return the same rows", retry)
    twice = client.send("POST", f"{PREFIX}/steps", {"id": "v", "steps": [steps[0]] * 3}).body
    once = len(twice["rows"]) == 1 and {item["error"]["code"] for item in twice["errors"]} == {"bad_request"}
    client.require(once, "vector", "a session that occurs several times must be refused after the first", retry)
    client.close(*sessions, *references)


def check_errors(client: Client) -> None:
    """Check that invalid requests return the documented error code and HTTP status."""
    session = client.open()
    path = f"{PREFIX}/sessions/{session}/step"
    form = "application/x-www-form-urlencoded"
    requests: list[tuple[str, str, str, dict[str, Any]]] = [
        ("bad_request", "POST", path, {"raw": b"{"}),
        ("bad_request", "POST", path, {"body": {"action": 5}}),
        ("bad_request", "POST", path, {"body": {"action": "x", "nonsense": 1}}),
        ("bad_request", "POST", path, {"raw": b"\xff\xfe"}),
        ("bad_request", "POST", path, {"raw": b"[" * 100_000}),
        ("unsupported_media", "POST", path, {"raw": b"action=x", "content_type": form}),
        ("not_allowed", "PUT", path, {"body": {"action": "x"}}),
        ("not_found", "POST", f"{PREFIX}/sessions/{session}/dance", {"body": {}}),
        ("not_found", "GET", "/nowhere", {}),
        ("unknown_env", "POST", f"{PREFIX}/sessions", {"body": {"env": "no:Such-v0"}}),
    ]
    for code, method, request_path, arguments in requests:
        response = client.send(method, request_path, **arguments)
        status = CODES[code][0]
        correct = response.status == status and response.code == code
        client.require(correct, "errors", f"the request must fail with {code} and status {status}", response)
    client.close(session)


def check_websocket(client: Client) -> None:
    """Check that every response on the WebSocket contains the id of its request."""
    websockets = require("websockets.sync.client", extra="serve")
    headers = {"Authorization": f"Bearer {client.token}"} if client.token else {}
    url = f"ws{client.base.removeprefix('http')}{PREFIX}/ws"
    with websockets.connect(url, additional_headers=headers) as websocket:
        requests = [{"op": "create", "env": client.env, "id": f"c{i}"} for i in range(4)]
        websocket.send(json.dumps(requests))
        received: list[dict[str, Any]] = []
        while len(received) < 4:
            message = json.loads(websocket.recv(timeout=60))
            received += message if isinstance(message, list) else [message]
        sessions = {item["id"]: item.get("result", {}).get("session") for item in received}
        client.last_request = f"websocket {requests}"
        complete = None not in sessions.values() and len(sessions) == 4
        client.require(complete, "websocket", "each request must receive a response", _as_response(received))
        websocket.send(json.dumps({"op": "dance", "id": "bad"}))
        error = json.loads(websocket.recv(timeout=60))
        correct = error.get("id") == "bad" and error.get("error", {}).get("code") == "bad_request"
        expected = "the response to an invalid request must be an error with the request's id"
        client.require(correct, "websocket", expected, _as_response(error))
        for session in sessions.values():
            websocket.send(json.dumps({"op": "close", "session": session, "id": f"x{session}"}))
            websocket.recv(timeout=60)


def _as_response(message: Any) -> Response:
    return Response(status=200, body=message, raw=json.dumps(message).encode(), headers={})


CHECKS: tuple[Callable[[Client], None], ...] = (
    check_health,
    check_token,
    check_determinism,
    check_retry,
    check_create_retry,
    check_order,
    check_concurrency,
    check_close,
    check_episodes,
    check_fork,
    check_msgpack,
    check_batch,
    check_vector_step,
    check_errors,
    check_websocket,
)


def check_server(url: str, *, env: str | None = None, token: str | None = None) -> list[str]:
    """Run all checks on the server at `url` and return their descriptions. Raise ConformanceError if a check fails.

    The checks use the environment `env`, by default the first environment that the server lists.
    """
    client = Client(url, env or "", token)
    if env is None:
        response = client.send("GET", f"{PREFIX}/envs")
        listed = response.status == 200 and bool(response.body.get("envs"))
        client.require(listed, "envs", "/envs must list the served environments", response)
        client.env = response.body["envs"][0]["env"]
    for check in CHECKS:
        check(client)
    return [(check.__doc__ or "").strip() for check in CHECKS]

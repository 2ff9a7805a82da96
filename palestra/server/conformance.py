"""check_server: does a server keep the protocol? Every law is tried over the wire, as a client would.

Nothing is assumed of the server but its address: any implementation can be checked. A law that is broken is named, with
what was asked and what was answered.
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
from palestra.remote.protocol import CODES, JSON, MSGPACK, PREFIX

STATUSES = frozenset(status for status, _ in CODES.values()) | {200, 201}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An answer."""

    status: int
    body: Any
    raw: bytes
    headers: dict[str, str]

    @property
    def code(self) -> str:
        return self.body.get("error", {}).get("code", "") if isinstance(self.body, dict) else ""


class Caller:
    """Plain HTTP to one server; keeps what was asked last, for what is told of a broken law."""

    def __init__(self, base: str, env: str, token: str | None) -> None:
        parts = urlsplit(base)
        if parts.scheme != "http" or not parts.netloc:
            raise BadValue(f"a server's address reads http://HOST:PORT, got {base!r}")
        self.host, self.path = parts.netloc, parts.path.rstrip("/")
        self.base, self.env = base.rstrip("/"), env
        self.token = token
        self.last = ""

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = JSON,
        accept: str = JSON,
        token: str | None = None,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Told:
        given = {"Accept": accept, **(headers or {})}
        shown = self.token if token is None else token
        if shown:
            given["Authorization"] = f"Bearer {shown}"
        data = raw
        if body is not None:
            data = msgspec.msgpack.encode(body) if kind == MSGPACK else json.dumps(body).encode()
        if data is not None and kind:
            given["Content-Type"] = kind
        self.last = f"{method} {path} {'' if data is None else data[:200]!r}"
        wire = http.client.HTTPConnection(self.host, timeout=60)
        try:
            wire.request(method, self.path + path, data, given)
            response = wire.getresponse()
            told = response.read()
            kind_of = response.headers.get("Content-Type", "")
            found = {name.lower(): value for name, value in response.headers.items()}
            status = response.status
        finally:
            wire.close()
        try:
            value: Any = msgspec.msgpack.decode(told) if MSGPACK in kind_of else msgspec.json.decode(told)
        except msgspec.DecodeError:
            value = told
        return Told(status=status, body=value, raw=told, headers=found)

    def open(self, **more: Any) -> str:
        told = self.ask("POST", f"{PREFIX}/sessions", {"env": self.env, **more})
        self.require(told.status == 201 and isinstance(told.body, dict), "sessions", "create answers 201", told)
        return str(told.body["session"])

    def call(self, session: str, what: str, **body: Any) -> Told:
        return self.ask("POST", f"{PREFIX}/sessions/{session}/{what}", body)

    def close(self, session: str) -> None:
        self.ask("DELETE", f"{PREFIX}/sessions/{session}")

    def action(self, session: str) -> str:
        told = self.call(session, "suggest_action", player="random")
        return str(told.body["action"]) if told.status == 200 else "x"

    def require(self, holds: bool, law: str, words: str, told: Told) -> None:
        if not holds:
            seen = f"{told.status} {told.raw[:300]!r}"
            raise ConformanceError(law, f"{words}; the answer was {seen}", f"    {self.last}")


Law = Callable[[Caller], None]


def _health(to: Caller) -> None:
    """/health and /ready answer 200 without a token."""
    for path in ("/health", "/ready"):
        told = to.ask("GET", path, token="")
        to.require(told.status == 200, "health", f"{path} answers 200", told)
    told = to.ask("GET", "/openapi.json")
    to.require(told.status == 200 and "paths" in told.body, "openapi", "the document is served", told)


def _token(to: Caller) -> None:
    """Where a token is asked for, a wrong one and none are refused alike."""
    if to.token is None:
        return
    for wrong in ("x", to.token[:-1], to.token + "x"):
        told = to.ask("GET", f"{PREFIX}/envs", token=wrong)
        to.require(told.status == 401 and told.code == "unauthorized", "token", "a wrong token is refused", told)


def _episode(to: Caller) -> None:
    """The same seed and actions lead to the same answers, again and again."""
    session = to.open()
    first = to.call(session, "reset", seed=11)
    to.require(first.status == 200 and "observation" in first.body, "reset", "reset answers an observation", first)
    step = to.call(session, "step", action=to.action(session))
    names = {"observation", "reward", "terminated", "truncated", "info"}
    to.require(step.status == 200 and names <= step.body.keys(), "step", f"step answers {sorted(names)}", step)
    for seed in range(20, 32):
        to.call(session, "reset", seed=seed)
        actions = [to.action(session) for _ in range(3)]
        seen = []
        for _ in range(2):
            told = to.call(session, "reset", seed=seed, actions=actions)
            seen.append((told.status, told.body.get("observation"), told.body.get("reward")))
        to.require(seen[0] == seen[1], "seeds", f"seed {seed} and {actions} lead to the same, twice", told)
    to.close(session)


def _once(to: Caller) -> None:
    """A step that is sent again with its id and number is answered with the same bytes, and taken once."""
    session, twin = to.open(), to.open()
    to.call(session, "reset", seed=5, id="r", seq=0)
    to.call(twin, "reset", seed=5)
    action = to.action(session)
    first = to.call(session, "step", action=action, id="s", seq=1)
    second = to.call(session, "step", action=action, id="s", seq=1)
    to.require(first.raw == second.raw, "exactly once", "a retry gets the same answer", second)
    to.call(twin, "step", action=action)
    if not (first.body.get("terminated") or first.body.get("truncated")):
        here = to.call(session, "step", action=action, id="t", seq=2)
        there = to.call(twin, "step", action=action)
        strip = [{k: v for k, v in told.body.items() if k != "seq"} for told in (here, there)]
        to.require(strip[0] == strip[1], "exactly once", "a retry does not step twice", here)
    to.close(session)
    to.close(twin)


def _create_once(to: Caller) -> None:
    """A creation that is sent again makes one session."""
    body = {"env": to.env, "id": f"conformance-{os.urandom(6).hex()}"}
    first = to.ask("POST", f"{PREFIX}/sessions", body)
    second = to.ask("POST", f"{PREFIX}/sessions", body)
    same = first.status == 201 and second.body.get("session") == first.body.get("session")
    to.require(same, "exactly once", "a creation that is sent again gives the same session", second)
    to.close(first.body["session"])


def _order(to: Caller) -> None:
    """Only the next number is taken; the answer says which that is."""
    session = to.open()
    to.call(session, "reset", seed=1, id="a", seq=0)
    for seq in (0, 7):
        told = to.call(session, "step", action="x", id=f"wrong{seq}", seq=seq)
        right = told.status == 409 and told.code == "out_of_order" and told.body["error"].get("expected") == 1
        to.require(right, "order", f"number {seq} is refused where 1 is next, and `expected` says so", told)
    for verb in ("fork", "step"):
        told = to.call(session, verb, id="a", **({"action": "x"} if verb == "step" else {}))
        right = told.status == 409 and told.code == "id_reused"
        to.require(right, "order", f"a {verb} with the id of a reset is not answered as that reset was", told)
    to.close(session)


def _together(to: Caller) -> None:
    """Calls of one session that come together are carried out one at a time, or refused; none is lost."""
    session = to.open()
    to.call(session, "reset", seed=2, id="a", seq=0)
    action = to.action(session)
    told: list[Told] = []

    def step(number: int) -> None:
        told.append(Caller(to.base, to.env, to.token).call(session, "step", action=action, id=f"c{number}", seq=1))

    threads = [threading.Thread(target=step, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [one for one in told if one.status == 200]
    bad = next((one for one in told if one.status != 200 and one.code not in ("out_of_order", "session_busy")), None)
    to.require(len(good) == 1 and bad is None, "one at a time", "one of eight equal numbers is taken", bad or told[0])
    to.close(session)


def _ends(to: Caller) -> None:
    """Closing twice is no error; a closed session is gone, an unknown one is not there."""
    session = to.open()
    for _ in range(2):
        told = to.call(session, "close")
        to.require(told.status == 200, "close", "closing is idempotent", told)
    told = to.call(session, "step", action="x")
    gone = told.status == 410 and told.code == "session_gone" and told.body["error"].get("cause") == "closed"
    to.require(gone, "close", "a closed session is gone, and the cause is told", told)
    told = to.call("nobody", "step", action="x")
    to.require(told.status == 404 and told.code == "unknown_session", "sessions", "an unknown one is not there", told)


def _over(to: Caller) -> None:
    """A step before the first reset and one after the end are refused as such."""
    session = to.open()
    told = to.call(session, "step", action="x")
    to.require(told.status == 409 and told.code == "reset_needed", "episodes", "a reset is needed first", told)
    to.call(session, "reset", seed=3)
    for _ in range(300):
        told = to.call(session, "step", action=to.action(session))
        if told.status != 200 or told.body["terminated"] or told.body["truncated"]:
            break
    else:
        to.close(session)
        return  # an endless one
    told = to.call(session, "step", action="x")
    to.require(told.status == 409 and told.code == "episode_over", "episodes", "no step after the last", told)
    to.close(session)


def _fork(to: Caller) -> None:
    """A fork goes its own way."""
    session = to.open()
    to.call(session, "reset", seed=4)
    action = to.action(session)
    told = to.call(session, "fork")
    to.require(told.status == 200 and "session" in told.body, "fork", "fork answers a session", told)
    twin = told.body["session"]
    one, two = to.call(session, "step", action=action), to.call(twin, "step", action=action)
    same = {k: v for k, v in one.body.items() if k != "seq"} == {k: v for k, v in two.body.items() if k != "seq"}
    to.require(same, "fork", "the same action leads to the same in both", two)
    to.close(session)
    told = to.ask("GET", f"{PREFIX}/sessions/{twin}")
    to.require(told.status == 200, "fork", "it outlives what it was forked from", told)
    to.close(twin)


def _kinds(to: Caller) -> None:
    """msgpack in and out says the same as JSON."""
    session, twin = to.open(), to.open()
    plain = to.call(session, "reset", seed=6)
    path = f"{PREFIX}/sessions/{twin}/reset"
    packed = to.ask("POST", path, {"seed": 6}, kind=MSGPACK, accept=MSGPACK)
    to.require(packed.headers.get("content-type", "").startswith(MSGPACK), "msgpack", "it is said in msgpack", packed)
    same = packed.body.get("observation") == plain.body["observation"]
    to.require(same, "msgpack", "it says the same as JSON", packed)
    to.close(session)
    to.close(twin)


def _batch(to: Caller) -> None:
    """A batch is answered in its order, each for itself."""
    sessions = [to.open() for _ in range(3)]
    asks: list[dict[str, Any]] = [{"op": "reset", "session": s, "seed": 1, "id": s} for s in sessions]
    asks.insert(1, {"op": "step", "session": "nobody", "action": "x", "id": "bad"})
    told = to.ask("POST", f"{PREFIX}/batch", {"requests": asks})
    ids = [answer.get("id") for answer in told.body.get("answers", [])] if isinstance(told.body, dict) else []
    to.require(told.status == 200 and ids == [ask["id"] for ask in asks], "batch", "answers come in order", told)
    codes = [answer.get("error", {}).get("code", "ok") for answer in told.body["answers"]]
    to.require(codes == ["ok", "unknown_session", "ok", "ok"], "batch", "each is answered for itself", told)
    for session in sessions:
        to.close(session)


def _vector(to: Caller) -> None:
    """Steps of many sessions in one request: each is answered once, as it would be alone, and the same when retried."""
    sessions, twins = [to.open() for _ in range(3)], [to.open() for _ in range(3)]
    for number, session in enumerate((*sessions, *twins)):
        to.call(session, "reset", seed=number % 3, seq=0)
    actions = [to.action(session) for session in sessions]
    steps = [[session, 1, action] for session, action in zip(sessions, actions, strict=True)]
    told = to.ask("POST", f"{PREFIX}/steps", {"id": "v", "steps": [*steps, ["nobody", 1, "x"]]})
    rows = sorted(told.body.get("rows", [])) if isinstance(told.body, dict) else []
    right = told.status == 200 and [row[0] for row in rows] == [0, 1, 2]
    to.require(right, "vector", "every step has one row", told)
    missed = [(one.get("index"), one.get("error", {}).get("code")) for one in told.body.get("errors", [])]
    to.require(missed == [(3, "unknown_session")], "vector", "what is wrong with a step is told with its index", told)
    for row, twin, action in zip(rows, twins, actions, strict=True):
        one = to.call(twin, "step", action=action, seq=1)
        alone = [one.body.get(name) for name in ("observation", "reward", "terminated", "truncated", "info")]
        to.require(row[1:6] == alone, "vector", f"a row is what the step alone leads to, {alone}", told)
    again = to.ask("POST", f"{PREFIX}/steps", {"id": "v", "steps": steps})
    to.require(sorted(again.body["rows"]) == rows, "vector", "a retry gets the same rows", again)
    for session in (*sessions, *twins):
        to.close(session)


def _bad(to: Caller) -> None:
    """Bad requests get a documented code, and never a 500."""
    session = to.open()
    path = f"{PREFIX}/sessions/{session}/step"
    for code, told in (
        ("bad_request", to.ask("POST", path, raw=b"{")),
        ("bad_request", to.ask("POST", path, {"action": 5})),
        ("bad_request", to.ask("POST", path, {"action": "x", "nonsense": 1})),
        ("bad_request", to.ask("POST", path, raw=b"\xff\xfe")),
        ("bad_request", to.ask("POST", path, raw=b"[" * 100_000)),
        ("unsupported_media", to.ask("POST", path, raw=b"action=x", kind="application/x-www-form-urlencoded")),
        ("not_allowed", to.ask("PUT", path, {"action": "x"})),
        ("not_found", to.ask("POST", f"{PREFIX}/sessions/{session}/dance", {})),
        ("not_found", to.ask("GET", "/nowhere")),
        ("unknown_env", to.ask("POST", f"{PREFIX}/sessions", {"env": "no:Such-v0"})),
    ):
        right = told.status == CODES[code][0] and told.code == code
        to.require(right, "errors", f"that is {code}, {CODES[code][0]}", told)
    to.close(session)


def _socket(to: Caller) -> None:
    """On the socket every answer has the id of its request, whatever the order; one request or a list of them."""
    client = require("websockets.sync.client", extra="serve")
    headers = {"Authorization": f"Bearer {to.token}"} if to.token else {}
    with client.connect(f"ws{to.base.removeprefix('http')}{PREFIX}/ws", additional_headers=headers) as socket:
        asks = [{"op": "create", "env": to.env, "id": f"c{i}"} for i in range(4)]
        socket.send(json.dumps(asks))
        sessions = {}
        heard: list[dict[str, Any]] = []
        while len(heard) < 4:
            message = json.loads(socket.recv(timeout=60))
            heard += message if isinstance(message, list) else [message]
        sessions = {one["id"]: one.get("result", {}).get("session") for one in heard}
        told = Told(status=200, body=heard, raw=json.dumps(heard).encode(), headers={})
        to.last = f"socket {asks}"
        to.require(None not in sessions.values() and len(sessions) == 4, "socket", "each request is answered", told)
        socket.send(json.dumps({"op": "dance", "id": "bad"}))
        bad = json.loads(socket.recv(timeout=60))
        told = Told(status=200, body=bad, raw=json.dumps(bad).encode(), headers={})
        right = bad.get("id") == "bad" and bad.get("error", {}).get("code") == "bad_request"
        to.require(right, "socket", "a bad request is answered with its id", told)
        for session in sessions.values():
            socket.send(json.dumps({"op": "close", "session": session, "id": f"x{session}"}))
            socket.recv(timeout=60)


LAWS: tuple[Law, ...] = (
    _health,
    _token,
    _episode,
    _once,
    _create_once,
    _order,
    _together,
    _ends,
    _over,
    _fork,
    _kinds,
    _batch,
    _vector,
    _bad,
    _socket,
)


def check_server(url: str, *, env: str | None = None, token: str | None = None) -> list[str]:
    """Try every law on the server at `url`, with `env` (its first one otherwise); what was tried, a line each.

    Raises ConformanceError at the first that does not hold. Its sessions are closed again.
    """
    to = Caller(url, env or "", token)
    if env is None:
        told = to.ask("GET", f"{PREFIX}/envs")
        to.require(told.status == 200 and bool(told.body.get("envs")), "envs", "the served ones are listed", told)
        to.env = told.body["envs"][0]["env"]
    done = []
    for law in LAWS:
        law(to)
        done.append((law.__doc__ or "").strip())
    return done

"""Access control for the viewer: host names, token, same-origin checks, and security headers.

Web pages from other origins must not be able to read or control the viewer. Therefore requests for other host names are
refused (to prevent DNS rebinding), and requests that change state require a header that other origins cannot send.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OWN_HEADER = "x-palestra"  # other origins cannot send this header without CORS permission, which is never granted
LARGEST = 1 << 20  # maximum size of a request in bytes
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+)(?::[0-9]+)?")
_PUBLIC = frozenset({"/style.css", "/icon.svg"})  # static files for the login page
_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Palestra</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="/style.css"></head><body><main class="login"><h1>Palestra</h1>
<form method="get" action="/"><label>Token
<input name="token" type="password" autocomplete="current-password" autofocus></label><button>Open</button></form>
<p>The token was set with <code>--token</code> when <code>palestra view</code> was started.</p>
</main></body></html>"""


class AccessControl:
    """ASGI middleware that checks every request before passing it to the application."""

    def __init__(self, app: App, *, token: str | None, any_host: bool) -> None:
        self._app = app
        self._token = token
        self._any_host = any_host
        key = (token or "").encode()
        self._cookie = hmac.new(key, b"palestra view cookie", hashlib.sha256).hexdigest()  # does not reveal the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._known_host(headers.get("host", "")):
            await _answer(send, 421, "this host name is not allowed; open the viewer at localhost")
            return
        if self._token is not None and not self._allowed(scope, headers):
            await self._request_token(scope, send)
            return
        problem = _refusal(scope, headers)
        if problem is not None:
            await _answer(send, *problem)
            return
        if self._token is not None and "token" in _query(scope):  # move the token from the URL into a cookie
            await _redirect(send, f"palestra_view={self._cookie}; Path=/; HttpOnly; SameSite=Strict")
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in known]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _known_host(self, host: str) -> bool:
        if self._any_host:
            return True  # safe with a token, because browsers send a cookie only to the host that set it
        match = _HOST.fullmatch(host)
        return match is not None and match[1].lower() in LOOPBACK

    def _allowed(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        if scope["path"] in _PUBLIC:
            return True
        authorization = headers.get("authorization", "")
        if authorization.lower().startswith("bearer ") and self._is_token(authorization[7:].strip().encode("latin-1")):
            return True
        token = _query(scope).get("token", "") if (scope["method"], scope["path"]) == ("GET", "/") else ""
        if token and self._is_token(token.encode()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get("palestra_view")
        except CookieError:
            return False
        value = "" if cookie is None else cookie.value
        return hmac.compare_digest(value.encode("latin-1", "replace"), self._cookie.encode())

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, (self._token or "").encode())  # constant-time comparison

    async def _request_token(self, scope: Scope, send: Send) -> None:
        if scope["path"] == "/" and scope["method"] in ("GET", "HEAD"):
            await _answer(send, 401, _LOGIN, kind="text/html; charset=utf-8")
        else:
            await _answer(
                send, 401, "a token is required: open ?token=... once in a browser, or send Authorization: Bearer ..."
            )


def _refusal(scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the status and error message if a state-changing request must be refused, or None to accept it."""
    if scope["method"] in ("GET", "HEAD"):
        return None
    if headers.get("sec-fetch-site", "same-origin") != "same-origin" or OWN_HEADER not in headers:
        return 403, "this request is only accepted from the viewer's own page"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return 403, "this request is only accepted from the viewer's own page"
    length = headers.get("content-length", "")
    if not length.isdigit():
        return 411, "the request needs a Content-Length header"
    if int(length) > LARGEST:
        return 413, f"a request may have at most {LARGEST:,} bytes"
    return None


def _query(scope: Scope) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


async def _answer(send: Send, status: int, text: str, *, kind: str = "text/plain; charset=utf-8") -> None:
    body = text.encode()
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, cookie: str) -> None:
    headers = [
        (b"location", b"/"),
        (b"set-cookie", cookie.encode()),
        (b"content-length", b"0"),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})

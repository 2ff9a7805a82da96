"""HTTP client for JSON requests with pooled connections, bounded concurrency and retries."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import getproxies

from palestra.errors import EngineFailed, ParsingFailed
from palestra.optional import require

if TYPE_CHECKING:
    import aiohttp

_LOG = logging.getLogger(__name__)
_MAX_MESSAGE = 500
_MAX_BACKOFF = 30.0  # maximum seconds between two attempts, unless the server requests more


class HttpResponse(NamedTuple):
    """A server response: its data, or the error message if the status is 300 or higher."""

    status: int
    data: Any
    error: str

    @property
    def ok(self) -> bool:
        return self.status < 300


@dataclass(slots=True)
class _LoopState:
    """Connection pool for one event loop."""

    session: aiohttp.ClientSession
    slots: asyncio.Semaphore  # limits concurrency; a request's timeout starts after it has acquired a slot
    lifetime: AsyncGenerator[aiohttp.ClientSession, None]
    shared: asyncio.Task[None] | None = None  # the running job of `run_once`


class HttpTransport:
    """Sends requests to one server from any event loop. Each loop has its own pool, which is closed with the loop."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        secret: str | None,
        concurrency: int,
        timeout: float,
        retries: int,
        backoff: float,
    ) -> None:
        self._aiohttp = require("aiohttp", extra="openai")
        self._json = require("orjson", extra="openai")
        self.base_url = base_url
        self._headers = headers
        self._secret = secret
        self._concurrency = concurrency
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._rng = random.Random()
        self._states: dict[asyncio.AbstractEventLoop, _LoopState] = {}
        self.retried = 0  # number of retried requests

    async def send(self, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        """POST `body` as JSON, or GET if it is None. Retry transient errors; return other error responses.

        Raises EngineFailed if every attempt failed and ParsingFailed if the response is not JSON.
        """
        state = await self._state()
        url = path if "://" in path else self.base_url + path
        data = None if body is None else self._dumps(body)
        method = "GET" if data is None else "POST"
        cause: Exception | None = None
        async with state.slots:
            for attempt in range(self._retries + 1):
                if state.session.closed:
                    raise EngineFailed(f"the engine was closed during {method} {url}") from cause
                wait = None
                try:
                    # Redirects are not followed: that would drop the body and send the API key to another host.
                    async with state.session.request(method, url, data=data, allow_redirects=False) as response:
                        raw = await response.read()
                except (self._aiohttp.ClientError, OSError) as err:  # includes timeouts
                    cause = err
                    error = self.clean(str(err)) or f"no response within {self._timeout:g} s"
                    error = f"{type(err).__name__}: {error}"
                else:
                    status = response.status
                    if status < 300:
                        return HttpResponse(status, self._loads(raw, url), "")
                    error = self._error_message(raw, response.headers)
                    if not (status in (408, 409, 429) or (status >= 500 and status != 501)):
                        return HttpResponse(status, None, error)
                    cause, error = None, f"{status} {error}"
                    wait = _retry_after(response.headers)
                if attempt < self._retries:
                    self.retried += 1
                    seconds = self._delay(attempt, wait)
                    _LOG.debug("%s %s: %s; retrying in %.2f s", method, url, error, seconds)
                    await asyncio.sleep(seconds)
        attempts = f"after {self._retries + 1} attempts" if self._retries else "after one attempt"
        raise EngineFailed(f"{method} {url} failed {attempts}: {error}") from cause

    async def run_once(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `job` once for all concurrent callers and wait until it ends. All callers raise its exception, if any."""
        state = await self._state()
        if state.shared is None:
            task = state.shared = asyncio.create_task(job())

            def finished(_: object) -> None:
                state.shared = None
                if not task.cancelled():
                    task.exception()  # mark the exception as retrieved, because all callers may have been canceled

            task.add_done_callback(finished)
        await asyncio.shield(state.shared)

    async def aclose(self) -> None:
        """Close this event loop's connections. The next request opens new ones."""
        state = self._states.get(asyncio.get_running_loop())
        if state is not None:
            await state.lifetime.aclose()

    async def _state(self) -> _LoopState:
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None or state.session.closed:
            for ended in [loop for loop in self._states if loop.is_closed()]:
                del self._states[ended]
            lifetime = _session_lifetime(self._session)
            state = _LoopState(await anext(lifetime), asyncio.Semaphore(self._concurrency), lifetime)
            self._states[loop] = state
        return state

    def _session(self) -> aiohttp.ClientSession:
        http = self._aiohttp
        session: aiohttp.ClientSession = http.ClientSession(
            # Servers usually close idle connections 5 seconds after a reply, which a busy process reads later.
            connector=http.TCPConnector(limit=self._concurrency, keepalive_timeout=2),
            headers=self._headers,
            timeout=http.ClientTimeout(total=self._timeout),
            cookie_jar=http.DummyCookieJar(),
            # With trust_env, aiohttp looks up proxies for every request, so enable it only if a proxy is set.
            trust_env=bool(getproxies().keys() - {"no"}),
        )
        return session

    def _delay(self, attempt: int, requested: float | None) -> float:
        """Return the seconds until the next attempt: exponential backoff with jitter, or `requested` if longer."""
        own: float = min(_MAX_BACKOFF, self._backoff * 2.0**attempt) * self._rng.uniform(0.5, 1.0)
        return own if requested is None else max(own, min(requested, self._timeout))

    def _dumps(self, body: Mapping[str, Any]) -> bytes:
        try:
            return bytes(self._json.dumps(body))
        except TypeError:  # the text contains an unpaired surrogate from an agent or environment
            return bytes(self._json.dumps(_replace_surrogates(body)))

    def _loads(self, raw: bytes, url: str) -> Any:
        try:
            return self._json.loads(raw)
        except self._json.JSONDecodeError as err:
            start = self.clean(raw[:200].decode("utf-8", "replace"))
            raise ParsingFailed(f"{url} returned a body that is not JSON ({err}): {start!r}") from None

    def _error_message(self, raw: bytes, headers: Mapping[str, str]) -> str:
        """Extract the server's error message from the usual fields."""
        try:
            data = self._json.loads(raw)
        except self._json.JSONDecodeError:
            data = raw.decode("utf-8", "replace")
        for key in ("error", "message", "detail"):
            if isinstance(data, dict) and key in data:
                data = data[key]
        text = data if isinstance(data, str) else self._json.dumps(data).decode()
        if "location" in headers:
            text = f"redirect to {headers['location']} {text}"
        return self.clean(text)

    def clean(self, text: str) -> str:
        """Return `text` as one line of limited length without the API key."""
        if self._secret:
            text = text.replace(self._secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."


async def _session_lifetime(make: Callable[[], aiohttp.ClientSession]) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Yield a session and close it on `aclose`, when its event loop ends, or when the generator is garbage-collected.

    The reference to `make` is deleted, because it would form a reference cycle, and the objects in a cycle are
    finalized in arbitrary order.
    """
    session = make()
    del make
    try:
        yield session
    finally:
        await session.close()


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Parse the Retry-After header (seconds or a date) into seconds."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {key: _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, (list, tuple)) else value

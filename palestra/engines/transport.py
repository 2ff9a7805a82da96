"""JSON to a server and back, for many requests at once: pooled, limited, retried, and silent about the key."""

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
_LONGEST_MESSAGE = 500
_LONGEST_WAIT = 30.0  # between two attempts, unless the server asks for more


class Answer(NamedTuple):
    """What the server said: data, or (from 300 up) why not."""

    status: int
    data: Any
    problem: str

    @property
    def ok(self) -> bool:
        return self.status < 300


@dataclass(slots=True)
class _Line:
    """What belongs to one event loop."""

    session: aiohttp.ClientSession
    slots: asyncio.Semaphore  # taken before the clock of a request starts to run
    lifetime: AsyncGenerator[aiohttp.ClientSession, None]
    shared: asyncio.Task[None] | None = None


class Transport:
    """Requests to one server from any event loop; each loop gets a pool of its own, which ends with the loop."""

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
        self._chance = random.Random()
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self.retried = 0  # requests sent again, for whoever counts

    async def send(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """POST `body` as JSON, or GET without one. Passing trouble is retried; a refusal is an Answer.

        Raises EngineFailed where every attempt failed, ParsingFailed where the answer is not JSON.
        """
        line = await self._line()
        url = path if "://" in path else self.base_url + path
        data = None if body is None else self._dumped(body)
        method = "GET" if data is None else "POST"
        cause: Exception | None = None
        async with line.slots:
            for attempt in range(self._retries + 1):
                if line.session.closed:
                    raise EngineFailed(f"the engine was closed while {method} {url} was under way") from cause
                wait = None
                try:
                    # A redirect is answered, not followed: it would lose the body, and take the key elsewhere.
                    async with line.session.request(method, url, data=data, allow_redirects=False) as response:
                        raw = await response.read()
                except (self._aiohttp.ClientError, OSError) as err:  # a time-out is an OSError
                    cause = err
                    problem = self.clean(str(err)) or f"no answer in {self._timeout:g} s"
                    problem = f"{type(err).__name__}: {problem}"
                else:
                    status = response.status
                    if status < 300:
                        return Answer(status, self._parsed(raw, url), "")
                    problem = self._problem(raw, response.headers)
                    if not (status in (408, 409, 429) or (status >= 500 and status != 501)):
                        return Answer(status, None, problem)
                    cause, problem = None, f"{status} {problem}"
                    wait = _asked_wait(response.headers)
                if attempt < self._retries:
                    self.retried += 1
                    seconds = self._wait(attempt, wait)
                    _LOG.debug("%s %s: %s; again in %.2f s", method, url, problem, seconds)
                    await asyncio.sleep(seconds)
        times = f"{self._retries + 1} times; the last time" if self._retries else "once"
        raise EngineFailed(f"{method} {url} failed {times}: {problem}") from cause

    async def together(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `job` once for all who ask while it runs; they share its outcome, so a dead server is waited for once."""
        line = await self._line()
        if line.shared is None:
            task = line.shared = asyncio.create_task(job())

            def over(_: object) -> None:
                line.shared = None
                if not task.cancelled():
                    task.exception()  # whoever asked may be gone; it was not missed

            task.add_done_callback(over)
        await asyncio.shield(line.shared)

    async def aclose(self) -> None:
        """Close this loop's connections. The next request opens new ones."""
        line = self._lines.get(asyncio.get_running_loop())
        if line is not None:
            await line.lifetime.aclose()

    async def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None or line.session.closed:
            for ended in [loop for loop in self._lines if loop.is_closed()]:
                del self._lines[ended]
            lifetime = _kept_open(self._session)
            line = _Line(await anext(lifetime), asyncio.Semaphore(self._concurrency), lifetime)
            self._lines[loop] = line
        return line

    def _session(self) -> aiohttp.ClientSession:
        http = self._aiohttp
        session: aiohttp.ClientSession = http.ClientSession(
            connector=http.TCPConnector(limit=self._concurrency, keepalive_timeout=4),  # servers give up after 5
            headers=self._headers,
            timeout=http.ClientTimeout(total=self._timeout),
            cookie_jar=http.DummyCookieJar(),
            trust_env=bool(getproxies().keys() - {"no"}),  # looked up for every request, so only where there is one
        )
        return session

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Twice as long each time, never all at once; at least what the server asked for, within the time-out."""
        own: float = min(_LONGEST_WAIT, self._backoff * 2.0**attempt) * self._chance.uniform(0.5, 1.0)
        return own if asked is None else max(own, min(asked, self._timeout))

    def _dumped(self, body: Mapping[str, Any]) -> bytes:
        try:
            return bytes(self._json.dumps(body))
        except TypeError:  # half a surrogate pair is no text; an agent or an environment may still have written it
            return bytes(self._json.dumps(_as_text(body)))

    def _parsed(self, raw: bytes, url: str) -> Any:
        try:
            return self._json.loads(raw)
        except self._json.JSONDecodeError as err:
            start = self.clean(raw[:200].decode("utf-8", "replace"))
            raise ParsingFailed(f"{url} answered with something other than JSON ({err}): {start!r}") from None

    def _problem(self, raw: bytes, headers: Mapping[str, str]) -> str:
        """The server's own words, wherever it puts them."""
        try:
            data = self._json.loads(raw)
        except self._json.JSONDecodeError:
            data = raw.decode("utf-8", "replace")
        for key in ("error", "message", "detail"):
            if isinstance(data, dict) and key in data:
                data = data[key]
        text = data if isinstance(data, str) else self._json.dumps(data).decode()
        if "location" in headers:
            text = f"moved to {headers['location']} {text}"
        return self.clean(text)

    def clean(self, text: str) -> str:
        """Fit to be shown: one line, not too long, without the key."""
        if self._secret:
            text = text.replace(self._secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."


async def _kept_open(make: Callable[[], aiohttp.ClientSession]) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """A session that is closed by `aclose`, or with its loop (a loop that ends closes its async generators), or when
    nobody holds the generator any more. So the frame holds the session alone: a cycle would be collected in any order.
    """
    session = make()
    del make
    try:
        yield session
    finally:
        await session.close()


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds until the server wants to be asked again: a number or a date."""
    asked = headers.get("retry-after")
    if asked is None:
        return None
    try:
        return max(0.0, float(asked))
    except ValueError:
        try:
            return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
        except ValueError:
            return None


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {key: _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, (list, tuple)) else value

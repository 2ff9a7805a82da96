"""Engine for hosted models behind their own APIs, such as those of Anthropic and Google, through litellm.

litellm translates chat messages, tools and sampling parameters into each provider's format. Replies contain text, not
token ids, so these models can be evaluated but not trained.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Hashable, Mapping, Sequence
from time import monotonic
from typing import Any

from palestra.engines.base import Completion, Engine, Sampling
from palestra.engines.openai_formats import chat_request, read_chat
from palestra.errors import BadValue, ContextFull, EngineFailed, PalestraError, ParsingFailed
from palestra.optional import require
from palestra.types import Message

_LOG = logging.getLogger(__name__)
PREFIX = "litellm:"  # prefix of model names on the command line: litellm:anthropic/claude-sonnet-4-5
MAX_WAIT = 120.0  # maximum seconds before a retry, even if the provider requests more
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)")  # value of the header retry-after
_RETRY_DELAY = re.compile(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')  # in the body of Google's errors
_EMPTY_RETRIES = 2  # additional requests after a reply with neither text nor tool calls


class LiteLLMEngine(Engine):
    """Chat engine for any model that litellm supports; `model` is litellm's name, such as gemini/gemini-2.5-flash.

    The API key comes from `api_key` or from the provider's environment variable (ANTHROPIC_API_KEY, GEMINI_API_KEY,
    ...). At most `concurrency` requests run at a time, and at most `requests_per_minute` start per minute (0: no
    limit). Connection errors, timeouts, rate limits and server errors are retried `retries` times with exponential
    backoff starting at `backoff` seconds, or after the time that the provider requests. `timeout` applies to one
    attempt. Sampling parameters that a provider does not support are omitted, except `min_p`, which is rejected.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        concurrency: int = 32,
        requests_per_minute: float = 0,
        timeout: float = 600.0,
        retries: int = 6,
        backoff: float = 1.0,
    ) -> None:
        if concurrency < 1 or timeout <= 0 or retries < 0 or backoff < 0 or requests_per_minute < 0:
            raise BadValue(
                "concurrency must be at least 1, timeout positive, retries, backoff and requests_per_minute 0 or more, "
                f"got {concurrency}, {timeout}, {retries}, {backoff}, {requests_per_minute}"
            )
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # its import would download a table of prices
        self._litellm = require("litellm", extra="litellm")
        self.model = model.removeprefix(PREFIX)
        try:
            self.provider: str = self._litellm.get_llm_provider(self.model)[1]
        except self._litellm.exceptions.BadRequestError as err:
            raise BadValue(
                f"litellm does not recognize the provider of {self.model!r}; write PROVIDER/MODEL, for example "
                "anthropic/claude-sonnet-4-5 or gemini/gemini-2.5-flash"
            ) from err
        self.max_context = self._info().get("max_input_tokens")
        self.retried = 0
        self._retries = retries
        self._backoff = backoff
        self._interval = 60 / requests_per_minute if requests_per_minute else 0.0
        self._next_start = 0.0  # earliest time of the next request
        self._slots = asyncio.Semaphore(concurrency)
        self._options: dict[str, Any] = {
            "timeout": timeout,
            "max_retries": 0,  # retried below, because litellm does not wait as long as the provider requests
            "drop_params": True,  # omit sampling parameters that the provider does not support
            **({} if api_key is None else {"api_key": api_key}),
            **({} if base_url is None else {"api_base": base_url}),
        }

    def __repr__(self) -> str:
        return f"LiteLLMEngine({self.model!r})"

    def _info(self) -> Mapping[str, Any]:
        """Return litellm's table entry for the model; it is empty for a model that the table does not contain."""
        table: Mapping[str, Mapping[str, Any]] = self._litellm.model_cost
        return table.get(self.model) or table.get(self.model.partition("/")[2]) or {}

    @property
    def prices(self) -> tuple[float, float] | None:
        """Prices in US dollars per million tokens read and written, from litellm's table; None if it has none."""
        info = self._info()
        read, written = info.get("input_cost_per_token"), info.get("output_cost_per_token")
        return None if read is None or written is None else (1e6 * read, 1e6 * written)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        del prompt_ids, sampling, conversation
        raise BadValue(f"{self.model} takes chat messages, not token ids; hosted models cannot be trained")

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        if sampling.min_p:
            raise BadValue("hosted models do not support min_p; leave it at its default")
        body = chat_request(
            self.model,
            messages,
            sampling,
            tools,
            max_tokens=sampling.max_tokens,
            limit_field="max_tokens",
            complete=False,
        )
        body.pop("stop_token_ids", None)
        for _ in range(_EMPTY_RETRIES + 1):
            reply = read_chat(await self._send(body))
            if reply.finish != "empty":
                break
        return Completion(
            ids=[],
            logprobs=[],
            text=reply.text,
            finish=reply.finish,
            version=self.version,
            prompt_ids=[],
            tool_calls=reply.tool_calls,
            usage=reply.usage,
        )

    async def _send(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return the response in OpenAI's format; retry transient errors."""
        async with self._slots:
            for attempt in range(self._retries + 1):
                await self._wait_for_turn()
                try:
                    response = await self._litellm.acompletion(**body, **self._options)
                except Exception as err:  # noqa: BLE001  # litellm also lets exceptions from the HTTP library through
                    error = self._error(err)
                    if not isinstance(error, EngineFailed) or attempt == self._retries:
                        raise error from None  # the original exception may contain the API key
                    wait = self._wait(err, attempt)
                    _LOG.info("%s; retrying in %.1f s", error, wait)
                    self.retried += 1
                    await asyncio.sleep(wait)
                else:
                    data: Mapping[str, Any] = response.model_dump()
                    return data
        raise AssertionError("unreachable")

    async def _wait_for_turn(self) -> None:
        if self._interval:
            now = monotonic()
            start = max(now, self._next_start)
            self._next_start = start + self._interval
            await asyncio.sleep(start - now)

    def _wait(self, err: Exception, attempt: int) -> float:
        """Return the number of seconds before the next attempt."""
        header = (getattr(err, "litellm_response_headers", None) or {}).get("retry-after", "")
        requested = _SECONDS.fullmatch(header) or _RETRY_DELAY.search(str(err))
        return min(float(requested[1]) if requested else self._backoff * 2**attempt, MAX_WAIT)

    def _error(self, err: Exception) -> PalestraError:
        kinds = self._litellm.exceptions
        key = self._options.get("api_key")
        text = str(err) if key is None else str(err).replace(key, "***")
        message = f"{self.model}: {' '.join(text.split())[:500]}"  # Google's errors have several lines
        if isinstance(err, PalestraError):
            return err
        if isinstance(err, kinds.ContextWindowExceededError):
            return ContextFull(message)
        if isinstance(err, (kinds.AuthenticationError, kinds.PermissionDeniedError)):
            return BadValue(f"{message}. Check the API key: --api-key-env, or the provider's environment variable")
        if isinstance(err, (kinds.NotFoundError, kinds.BadRequestError, kinds.UnprocessableEntityError)):
            return BadValue(message)
        if isinstance(err, kinds.APIResponseValidationError):
            return ParsingFailed(message)
        return EngineFailed(message)

"""Engine for a model behind an OpenAI-compatible server: vLLM, SGLang, or a hosted API."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from palestra.engines.base import Completion, Engine, Sampling, Tokenizer
from palestra.engines.context_errors import is_context_overflow, smaller_limit
from palestra.engines.http_transport import HttpResponse, HttpTransport
from palestra.engines.openai_formats import (
    CompletionsFormat,
    GenerateFormat,
    ServerReply,
    TokenFormat,
    chat_request,
    read_chat,
)
from palestra.errors import BadValue, ContextFull, EngineFailed, PalestraError, ParsingFailed
from palestra.optional import require
from palestra.types import Message

R = TypeVar("R")

_LOG = logging.getLogger(__name__)
_PROBE = "One, two, 3: probe."  # sent to detect a server's capabilities
_OPTIONAL = ("top_k", "min_p", "top_p", "stop_token_ids", "seed", "stop", "tools", "temperature")
_UNKNOWN_FIELD = re.compile(
    r"unrecogni|unknown|unexpected|unsupported|not supported|not permitted|additional propert", re.I
)
_EMPTY_RETRIES = 2  # additional requests after a reply with neither text nor tool calls
_NEEDS_IDS = "vLLM 0.10.2 or newer and SGLang return them; without tokenizer= the engine uses chat messages"
_RAW_LOGPROBS = (
    "start vLLM with --logprobs-mode raw_logprobs (its default), SGLang with SGLANG_RETURN_ORIGINAL_LOGPROB=1"
)


class _UnsupportedFormat(Exception):
    """The server does not support this request format."""


class OpenAIEngine(Engine):
    """Engine for any OpenAI-compatible server; exchanges token ids if the server supports that, otherwise messages.

    With the `tokenizer` of the server's model (a folder, a hub id, or an object) the engine sends ids and receives
    sampled ids with their log-probabilities: vLLM over `/v1/completions`, SGLang over `/generate`. `ready()` or the
    first request detects the server's capabilities with three tiny requests. If the server returns no ids,
    `ready()` drops the tokenizer and the engine uses chat messages; with `exact` it raises an error instead. Without a
    tokenizer the engine sends messages to `/v1/chat/completions`, and completions contain only text and tool calls.

    Log-probabilities are the model's at temperature 1. vLLM returns them by default; SGLang scales them by the
    temperature unless started with SGLANG_RETURN_ORIGINAL_LOGPROB=1. If the server scales them, the engine accepts only
    temperature 0 or 1 without filters.

    `model=None` uses the server's only model. The API key comes from `api_key` (a string, or the Path to a file)
    or from OPENAI_API_KEY; it is sent only to this server and never appears in error messages. `extra` is merged into
    the body of every request. Connection errors, timeouts, 408, 409, 429 and 5xx are retried `retries` times with
    exponential backoff starting at `backoff` seconds, honoring Retry-After; `timeout` applies to one attempt.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key: str | Path | None = None,
        tokenizer: Tokenizer | str | Path | None = None,
        exact: bool = False,
        concurrency: int = 256,
        timeout: float = 600.0,
        retries: int = 4,
        backoff: float = 0.5,
        max_context: int | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1 or timeout <= 0 or retries < 0 or backoff < 0:
            raise BadValue(
                "concurrency must be at least 1, timeout positive, retries and backoff 0 or more, got "
                f"{concurrency}, {timeout}, {retries}, {backoff}"
            )
        if exact and tokenizer is None:
            raise BadValue("exact=True needs the tokenizer of the server: pass tokenizer=<folder or hub id>")
        key = _read_key(api_key)
        self.model = model
        self.tokenizer = _load_tokenizer(tokenizer)
        self.max_context = max_context
        self._exact = exact
        self._extra = dict(extra or {})
        self._transport = HttpTransport(
            _normalize_url(base_url),
            headers={
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {key}"} if key else {}),
                **(headers or {}),
            },
            secret=key,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
        )
        self._ready = False
        self._format: TokenFormat | None = None
        self._no_ids_reason = ""
        self._scaled = False  # the server returns log-probabilities after temperature and filters
        self._models: list[str] = []
        self._complete = False  # the server accepts vLLM's sampling fields
        self._limit_field = "max_tokens"
        self._accepts_seed = True

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.base_url!r}, {self.model!r}, {'ids' if self.tokenizer is not None else 'text'})"

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    @property
    def retried(self) -> int:
        """Number of retried requests."""
        return self._transport.retried

    def set_version(self, version: int) -> None:
        """Set the version of the server's weights; completions that start later record it."""
        if version < self.version:
            raise BadValue(f"version must not decrease: got {version}, the current version is {self.version}")
        self.version = version

    async def ready(self) -> None:
        """Detect the model, its context length, and whether the server returns token ids. Idempotent."""
        if not self._ready:
            await self._transport.run_once(self._detect)

    async def _detect(self) -> None:
        await self._detect_model()
        if self.tokenizer is not None:
            await self._detect_format(self.tokenizer)
        self._ready = True

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        conversation: Hashable | None = None,  # noqa: ARG002  # the server detects shared prefixes
    ) -> Completion:
        await self.ready()
        if self._format is None or self.tokenizer is None:
            raise BadValue(f"{self.base_url} accepts messages, not token ids{self._no_ids_reason}; call chat()")
        if self._scaled and not _is_unscaled(sampling):
            raise BadValue(
                f"{self.base_url} returns log-probabilities after temperature and filters, which training cannot use; "
                f"sample at temperature 1 without top_p, top_k and min_p, or {_RAW_LOGPROBS}"
            )
        if sampling.tempered_logprobs and sampling.temperature not in (0, 1):
            raise BadValue(f"{self.base_url} returns log-probabilities at temperature 1; use tempered_logprobs=False")
        prompt = list(prompt_ids)
        version = self.version
        reply = await self._sample(self._format, prompt, sampling)
        return Completion(
            ids=reply.ids,
            logprobs=reply.logprobs,
            text=reply_text(self.tokenizer, reply),
            finish=reply.finish,
            version=version,
            prompt_ids=prompt,
        )

    async def score(self, ids: Sequence[int]) -> list[float]:
        await self.ready()
        if self._format is None:
            raise BadValue(f"{self.base_url} accepts messages, not token ids{self._no_ids_reason}")
        sent = list(ids)
        body = self._extra | self._format.score_request(self.model or "", sent)
        response = await self._transport.send(self._path(self._format), body)
        return self._read(partial(self._format.read_scores, ids=sent), response, body)

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        await self.ready()
        if self._format is not None:
            return await super().chat(messages, sampling, tools=tools)
        version = self.version
        reply = await self._chat_reply(messages, sampling, tools)
        for attempt in range(_EMPTY_RETRIES):
            if reply.finish != "empty":
                break
            seed = None if sampling.seed is None else sampling.seed + attempt + 1
            reply = await self._chat_reply(messages, replace(sampling, seed=seed), tools)
        return Completion(
            ids=[],
            logprobs=[],
            text=reply.text,
            finish=reply.finish,
            version=version,
            prompt_ids=[],
            tool_calls=reply.tool_calls,
            usage=reply.usage,
        )

    async def _chat_reply(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[dict[str, Any]]
    ) -> ServerReply:
        """Send a chat request. Adapt `max_tokens` if the server requires another name or a smaller value for it."""
        limit: int | None = sampling.max_tokens
        if self.max_context is not None:
            limit = min(sampling.max_tokens, self.max_context - 1)  # servers reject a value beyond the context length
        while limit is not None:
            body = self._extra | chat_request(
                self.model or "",
                messages,
                sampling,
                tools,
                max_tokens=limit,
                limit_field=self._limit_field,
                complete=self._complete,
            )
            if not self._accepts_seed:
                body.pop("seed", None)
            response = await self._transport.send("/chat/completions", body)
            if is_context_overflow(response.status, response.error):
                limit = smaller_limit(response.error, limit)
            elif response.status == 400 and "max_tokens" in body and "max_completion_tokens" in response.error:
                self._limit_field = "max_completion_tokens"  # newer OpenAI models accept only this name
            elif response.status in (400, 422) and _rejected_field(body, response.error) == "seed":
                self._accepts_seed = False
                _LOG.warning("%s accepts no seed; replies are not reproducible", self.base_url)
            else:
                break
        return self._read(read_chat, response, body)

    async def _sample(self, token_format: TokenFormat, prompt: list[int], sampling: Sampling) -> ServerReply:
        body = self._token_request(token_format, prompt, sampling)
        response = await self._transport.send(self._path(token_format), body)
        return self._read(partial(token_format.read, prompt=prompt), response, body)

    def _token_request(self, token_format: TokenFormat, prompt: list[int], sampling: Sampling) -> dict[str, Any]:
        """Return the body of a request for a reply that fits into the context."""
        limit = sampling.max_tokens
        if self.max_context is not None:
            limit = min(limit, self.max_context - len(prompt))
            if limit < 1:
                raise ContextFull(
                    f"a prompt of {len(prompt)} tokens leaves no room for a reply in a context of {self.max_context}; "
                    "shorten the conversation with a context policy"
                )
        return self._extra | token_format.request(self.model or "", prompt, sampling, limit)

    def _path(self, token_format: TokenFormat) -> str:
        if not token_format.path.startswith("//"):
            return token_format.path
        return self.base_url.removesuffix("/v1") + token_format.path[1:]

    def _read(self, read: Callable[[Any], R], response: HttpResponse, sent_body: Mapping[str, Any]) -> R:
        """Parse a response; if the server rejected the request, raise an error that explains how to fix it."""
        if not response.ok:
            raise self._error(response, sent_body)
        try:
            return read(response.data)
        except (ParsingFailed, EngineFailed) as err:  # the server's message may contain the API key
            raise type(err)(f"{self.base_url}: {self._transport.clean(str(err))}") from None

    def _error(self, response: HttpResponse, sent_body: Mapping[str, Any]) -> PalestraError:
        status, error = response.status, response.error
        message = f"{self.base_url} returned {status}: {error}"
        if status in (401, 403):
            return BadValue(f"{message}. Check the API key: api_key= or, by default, OPENAI_API_KEY")
        if status == 404 and self._models and self.model not in self._models:
            close = get_close_matches(self.model or "", self._models, n=3, cutoff=0.3)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            return BadValue(f"{self.base_url} has no model {self.model!r}.{hint} It has {_list_names(self._models)}")
        if status in (404, 405):
            return BadValue(f"{message}. Check base_url; it usually ends in /v1")
        if status < 400:
            return BadValue(f"{message}. Pass that URL as base_url")
        if is_context_overflow(status, error):
            return ContextFull(f"the prompt and max_tokens={self._limit(sent_body)} do not fit: {message}")
        if status in (400, 422):
            field = _rejected_field(sent_body, error)
            if field:
                return BadValue(f"the server does not support {field}; leave it at its default: {message}")
            return BadValue(message)
        return EngineFailed(message)

    @staticmethod
    def _limit(sent_body: Mapping[str, Any]) -> Any:
        params = sent_body.get("sampling_params", sent_body)
        names = ("max_tokens", "max_completion_tokens", "max_new_tokens")
        return next((params[name] for name in names if name in params), None)

    async def _detect_model(self) -> None:
        try:
            response = await self._transport.send("/models")
        except (ParsingFailed, EngineFailed) as err:  # some gateways return an HTML page or an error for any other path
            if self.model is None and isinstance(err, EngineFailed):
                raise
            response = HttpResponse(404, None, "no list of models")
        if response.status in (401, 403) and self.model is None:
            raise self._error(response, {})
        data = response.data.get("data") if isinstance(response.data, Mapping) else None
        cards = [card for card in data if isinstance(card, Mapping) and "id" in card] if isinstance(data, list) else []
        self._models = [str(card["id"]) for card in cards]
        if self.model is None:
            own = [str(card["id"]) for card in cards if not card.get("parent")]  # LoRA adapters name their parent model
            if len(own) != 1:
                listed = _list_names(own) or f"none ({response.status} {response.error})".strip()
                raise BadValue(f"model= is required, because {self.base_url} lists {listed}")
            self.model = own[0]
        card = next((card for card in cards if card["id"] == self.model), {})
        length = card.get("max_model_len")
        if isinstance(length, int):  # only vLLM and SGLang report the length, and both accept the same sampling fields
            self._complete = True
            self.max_context = length if self.max_context is None else min(length, self.max_context)

    async def _detect_format(self, tokenizer: Tokenizer) -> None:
        prompt = tokenizer.encode(_PROBE, add_special_tokens=False)
        greedy = Sampling(max_tokens=1, temperature=0.0)
        reasons = []
        for token_format in (CompletionsFormat(), GenerateFormat()):
            try:
                greedy_reply = await self._probe(token_format, prompt, greedy)
                cold_reply = await self._probe(token_format, prompt, replace(greedy, temperature=0.01))
            except (_UnsupportedFormat, ParsingFailed) as err:
                reasons.append(f"{self._path(token_format)}: {err}")
                continue
            # If the server divides logits by the low temperature, the greedy token's log-probability is close to 0.
            # The margin exceeds half-precision noise.
            self._scaled = cold_reply.logprobs[0] > greedy_reply.logprobs[0] + 0.05
            if isinstance(token_format, CompletionsFormat):
                await self._check_tokenizer(token_format, prompt, greedy)
            self._format = token_format
            return
        reason = f"the server returns no token ids ({'; '.join(reasons)})"
        if self._exact:
            raise BadValue(f"{self.base_url}: {reason}. {_NEEDS_IDS}")
        self._no_ids_reason = f": {reason}"
        self.tokenizer = None
        _LOG.warning("%s: %s; using chat messages, which training cannot use. %s", self.base_url, reason, _NEEDS_IDS)

    async def _probe(self, token_format: TokenFormat, prompt: list[int], sampling: Sampling) -> ServerReply:
        body = self._extra | token_format.request(self.model or "", prompt, sampling, 1)
        response = await self._transport.send(self._path(token_format), body)
        if response.ok:
            return self._read(partial(token_format.read, prompt=prompt), response, body)
        unknown_model = response.status == 404 and self._models and self.model not in self._models
        if response.status in (401, 403) or unknown_model:
            raise self._error(response, body)
        raise _UnsupportedFormat(f"{response.status} {response.error}")

    async def _check_tokenizer(self, token_format: CompletionsFormat, prompt: list[int], sampling: Sampling) -> None:
        """Raise BadValue if the server tokenizes a text differently, because then every prompt would be wrong."""
        body = self._extra | token_format.request(self.model or "", _PROBE, sampling, 1)
        response = await self._transport.send(token_format.path, body)
        try:
            read = response.data["choices"][0]["prompt_token_ids"]
        except (KeyError, IndexError, TypeError):
            return  # the server does not report prompt ids
        if read is not None and read != prompt:
            raise BadValue(
                f"the tokenizer does not match {self.model!r} at {self.base_url}: it encodes {_PROBE!r} as "
                f"{prompt[:8]}, the server as {read[:8]}. Pass the tokenizer of the served model"
            )


def reply_text(tokenizer: Tokenizer, reply: ServerReply) -> str:
    """Decode the ids, because the server's text may lack an incomplete character at the end."""
    by_token = reply.finish == "stop" and reply.stopped_by is None
    text = str(tokenizer.decode(reply.ids[:-1] if by_token else reply.ids, skip_special_tokens=False))
    if reply.stopped_by is None:
        return text
    at = text.find(reply.stopped_by)
    return text[:at] if at >= 0 else reply.text


def _rejected_field(body: Mapping[str, Any], error: str) -> str | None:
    """Return the optional field in `body` that the server's error message rejects as unknown, or None."""
    if not _UNKNOWN_FIELD.search(error):
        return None
    return next((name for name in _OPTIONAL if name in body and re.search(rf"\b{name}\b", error)), None)


def _is_unscaled(sampling: Sampling) -> bool:
    unfiltered = sampling.top_p == 1 and sampling.top_k == 0 and sampling.min_p == 0
    return sampling.temperature == 0 or (sampling.temperature == 1 and unfiltered)


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _normalize_url(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue(f"base_url must be a URL such as http://localhost:8000/v1, got {parts.scheme or base_url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadValue("base_url must not contain credentials or a query; use api_key= and headers=")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _read_key(api_key: str | Path | None) -> str | None:
    if isinstance(api_key, Path):
        try:
            api_key = api_key.read_text()
        except OSError as err:
            raise BadValue(f"cannot read the API key file: {err}") from err
    key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
    return key.strip() or None


def _load_tokenizer(tokenizer: Tokenizer | str | Path | None) -> Tokenizer | None:
    if tokenizer is None or not isinstance(tokenizer, (str, Path)):
        return tokenizer
    auto = require("transformers", extra="hf").AutoTokenizer
    try:
        loaded: Tokenizer = auto.from_pretrained(str(tokenizer))
    except (OSError, ValueError) as err:
        raise BadValue(f"no tokenizer at {str(tokenizer)!r}: {err}") from err
    return loaded

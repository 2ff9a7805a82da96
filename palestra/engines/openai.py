"""A model behind a server that speaks OpenAI's API, as an Engine: vLLM, SGLang, or a hosted one."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palestra.engines.base import Completion, Engine, Sampling, Tokenizer
from palestra.engines.dialects import (
    Completions,
    Generate,
    Said,
    TokenDialect,
    chat_request,
    read_chat,
)
from palestra.engines.transport import Answer, Transport
from palestra.errors import BadValue, EngineFailed, PalestraError, ParsingFailed
from palestra.optional import require
from palestra.types import Message

_LOG = logging.getLogger(__name__)
_PROBE = "One, two, 3: probe."  # what is sent to find out what a server can do
_OPTIONAL = ("top_k", "min_p", "top_p", "stop_token_ids", "seed", "stop", "tools", "temperature")
_UNKNOWN = re.compile(r"unrecogni|unknown|unexpected|unsupported|not supported|not permitted|additional propert", re.I)
_TOO_LONG = re.compile(
    r"context.?(length|window)|maximum.{0,20}(length|tokens)|too (long|many tokens)|max_model_len", re.I
)
_NEEDS_IDS = "vLLM from 0.10.2 on and SGLang show them; without tokenizer= the engine chats in text"
_RAW = "start vLLM with --logprobs-mode raw_logprobs (its default), SGLang with SGLANG_RETURN_ORIGINAL_LOGPROB=1"


class _NotSpoken(Exception):
    """The server does not know this way of asking."""


class OpenAIEngine(Engine):
    """Any compatible server, with tokens where it shows them and text where it does not.

    With a `tokenizer` (a folder, a hub id, or a loaded one: the server's own) the engine sends ids and gets the sampled
    ids with their log-probabilities back: vLLM over `/v1/completions`, SGLang over `/generate`. What the server can do
    is found out once, by `ready()` or the first request, with three tiny ones. Where it shows no ids, `ready()` takes
    the tokenizer away and the engine chats from then on; with `exact` that is an error instead. Without a tokenizer the
    engine sends messages to `/v1/chat/completions`, and completions carry text and tool calls alone.

    Log-probabilities are those of the model itself. vLLM gives them so unless told otherwise; SGLang divides by the
    temperature unless started with SGLANG_RETURN_ORIGINAL_LOGPROB=1. A server found to do that may be sampled at
    temperature 1 (or 0) without filters, where the two are the same; anything else is refused.

    `model` None takes the one the server has. The key comes from `api_key` (a string, or the Path of a file that holds
    it) or from OPENAI_API_KEY, goes to this server only, and is shown nowhere. `extra` goes into every request's body.
    Connection errors, time-outs, 408, 409, 429 and 5xx are retried `retries` times with growing pauses, from `backoff`
    seconds on, as long as Retry-After asks; `timeout` is for one attempt.
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
                "concurrency is at least 1, timeout above 0, retries and backoff 0 or more, got "
                f"{concurrency}, {timeout}, {retries}, {backoff}"
            )
        if exact and tokenizer is None:
            raise BadValue("exact tokens need the server's tokenizer: OpenAIEngine(..., tokenizer=<folder or hub id>)")
        key = _key(api_key)
        self.model = model
        self.tokenizer = _loaded(tokenizer)
        self.max_context = max_context
        self._exact = exact
        self._extra = dict(extra or {})
        self._transport = Transport(
            _address(base_url),
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
        self._dialect: TokenDialect | None = None
        self._why_no_ids = ""
        self._scaled = False  # log-probabilities follow the temperature and the filters
        self._models: list[str] = []
        self._complete = False  # the server takes vLLM's sampling fields
        self._limit_field = "max_tokens"

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.base_url!r}, {self.model!r}, {'ids' if self.tokenizer is not None else 'text'})"

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    @property
    def retried(self) -> int:
        """How many requests had to be sent again."""
        return self._transport.retried

    def set_version(self, version: int) -> None:
        """Record that the server now runs weights of `version`; completions that start later carry it."""
        if version < self.version:
            raise BadValue(f"version must not decrease: got {version}, the current version is {self.version}")
        self.version = version

    async def ready(self) -> None:
        """Find out the model, its context, and whether the server shows ids. Costs nothing the second time."""
        if not self._ready:
            await self._transport.together(self._find)

    async def _find(self) -> None:
        await self._find_model()
        if self.tokenizer is not None:
            await self._find_dialect(self.tokenizer)
        self._ready = True

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        conversation: Hashable | None = None,  # noqa: ARG002  # the server finds shared prefixes by itself
    ) -> Completion:
        await self.ready()
        if self._dialect is None or self.tokenizer is None:
            raise BadValue(f"{self.base_url} takes messages, not ids{self._why_no_ids}; call chat()")
        if self._scaled and not _plain(sampling):
            raise BadValue(
                f"{self.base_url} gives log-probabilities after temperature and filters, which cannot be trained on; "
                f"sample at temperature 1 without top_p, top_k and min_p, or {_RAW}"
            )
        prompt = list(prompt_ids)
        version = self.version
        said = await self._sampled(self._dialect, prompt, sampling)
        return Completion(
            ids=said.ids,
            logprobs=said.logprobs,
            text=_text(self.tokenizer, said),
            finish=said.finish,
            version=version,
            prompt_ids=prompt,
        )

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        await self.ready()
        if self._dialect is not None:
            return await super().chat(messages, sampling, tools=tools)
        version = self.version
        limit = sampling.max_tokens
        if self.max_context is not None:
            limit = min(limit, self.max_context - 1)  # a server cuts a reply that meets the limit, not a wish beyond it

        def body() -> dict[str, Any]:
            return self._extra | chat_request(
                self.model or "",
                messages,
                sampling,
                tools,
                max_tokens=limit,
                limit_field=self._limit_field,
                complete=self._complete,
            )

        sent = body()
        answer = await self._transport.send("/chat/completions", sent)
        if answer.status == 400 and "max_tokens" in sent and "max_completion_tokens" in answer.problem:
            self._limit_field = "max_completion_tokens"  # OpenAI's newer models know only this name
            sent = body()
            answer = await self._transport.send("/chat/completions", sent)
        said = self._read(read_chat, answer, sent)
        return Completion(
            ids=[],
            logprobs=[],
            text=said.text,
            finish=said.finish,
            version=version,
            prompt_ids=[],
            tool_calls=said.tool_calls,
            usage=said.usage,
        )

    async def _sampled(self, dialect: TokenDialect, prompt: list[int], sampling: Sampling) -> Said:
        limit = sampling.max_tokens
        if self.max_context is not None:
            limit = min(limit, self.max_context - len(prompt))
            if limit < 1:
                raise BadValue(
                    f"a prompt of {len(prompt)} tokens leaves no room in a context of {self.max_context}; "
                    "shorten the conversation with a context policy"
                )
        body = self._extra | dialect.request(self.model or "", prompt, sampling, limit)
        answer = await self._transport.send(self._path(dialect), body)
        return self._read(partial(dialect.read, prompt=prompt), answer, body)

    def _path(self, dialect: TokenDialect) -> str:
        if not dialect.path.startswith("//"):
            return dialect.path
        return self.base_url.removesuffix("/v1") + dialect.path[1:]

    def _read(self, read: Callable[[Any], Said], answer: Answer, sent: Mapping[str, Any]) -> Said:
        """The reply; a refusal, or an answer that is none, as an error that names the fix."""
        if not answer.ok:
            raise self._refusal(answer, sent)
        try:
            return read(answer.data)
        except (ParsingFailed, EngineFailed) as err:  # it may quote the server, and the server the key
            raise type(err)(f"{self.base_url}: {self._transport.clean(str(err))}") from None

    def _refusal(self, answer: Answer, sent: Mapping[str, Any]) -> PalestraError:
        status, problem = answer.status, answer.problem
        said = f"{self.base_url} answered {status}: {problem}"
        if status in (401, 403):
            return BadValue(f"{said}. Is the key right? It is api_key=, or OPENAI_API_KEY where that is not given")
        if status == 404 and self._models and self.model not in self._models:
            near = get_close_matches(self.model or "", self._models, n=3, cutoff=0.3)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            return BadValue(f"{self.base_url} has no model {self.model!r}.{hint} It has {_some(self._models)}")
        if status in (404, 405):
            return BadValue(f"{said}. Is the address right? It usually ends in /v1")
        if status < 400:
            return BadValue(f"{said}. Give that address as base_url")
        if status == 413 or (status in (400, 422) and _TOO_LONG.search(problem)):
            return BadValue(f"the prompt and max_tokens={self._limit(sent)} do not fit: {said}")
        if status in (400, 422):
            field = next((name for name in _OPTIONAL if name in sent and re.search(rf"\b{name}\b", problem)), None)
            if field and _UNKNOWN.search(problem):
                return BadValue(f"the server does not take {field}, so leave it at its default: {said}")
            return BadValue(said)
        return EngineFailed(said)

    @staticmethod
    def _limit(sent: Mapping[str, Any]) -> Any:
        params = sent.get("sampling_params", sent)
        names = ("max_tokens", "max_completion_tokens", "max_new_tokens")
        return next((params[name] for name in names if name in params), None)

    async def _find_model(self) -> None:
        try:
            answer = await self._transport.send("/models")
        except ParsingFailed:
            answer = Answer(404, None, "no list of models")  # some gateways answer anything with a page
        if answer.status in (401, 403):
            raise self._refusal(answer, {})
        data = answer.data.get("data") if isinstance(answer.data, Mapping) else None
        cards = [card for card in data if isinstance(card, Mapping) and "id" in card] if isinstance(data, list) else []
        self._models = [str(card["id"]) for card in cards]
        if self.model is None:
            own = [str(card["id"]) for card in cards if not card.get("parent")]  # adapters name what they adapt
            if len(own) != 1:
                found = f"it has {_some(own)}" if own else f"it lists none ({answer.status} {answer.problem})".strip()
                raise BadValue(f"which model of {self.base_url}? Give model=; {found}")
            self.model = own[0]
        card = next((card for card in cards if card["id"] == self.model), {})
        length = card.get("max_model_len")
        if isinstance(length, int):  # vLLM and SGLang say it, and take the same sampling fields
            self._complete = True
            self.max_context = length if self.max_context is None else min(length, self.max_context)

    async def _find_dialect(self, tokenizer: Tokenizer) -> None:
        prompt = tokenizer.encode(_PROBE, add_special_tokens=False)
        greedy = Sampling(max_tokens=1, temperature=0.0)
        reasons = []
        for dialect in (Completions(), Generate()):
            try:
                likeliest = await self._probe(dialect, prompt, greedy)
                cold = await self._probe(dialect, prompt, replace(greedy, temperature=0.01))
            except (_NotSpoken, ParsingFailed) as err:
                reasons.append(f"{self._path(dialect)}: {err}")
                continue
            # Under the model itself no token beats the likeliest; near temperature 0 every sampled one seems to.
            self._scaled = cold.logprobs[0] > likeliest.logprobs[0] + 0.05  # beyond the noise of half precision
            if isinstance(dialect, Completions):
                await self._same_tokenizer(dialect, prompt, greedy)
            self._dialect = dialect
            return
        why = f"the server shows no token ids ({'; '.join(reasons)})"
        if self._exact:
            raise BadValue(f"{self.base_url}: {why}. {_NEEDS_IDS}")
        self._why_no_ids = f": {why}"
        self.tokenizer = None
        _LOG.warning("%s: %s; chatting in text instead, which cannot be trained on. %s", self.base_url, why, _NEEDS_IDS)

    async def _probe(self, dialect: TokenDialect, prompt: list[int], sampling: Sampling) -> Said:
        body = self._extra | dialect.request(self.model or "", prompt, sampling, 1)
        answer = await self._transport.send(self._path(dialect), body)
        if answer.ok:
            return self._read(partial(dialect.read, prompt=prompt), answer, body)
        if answer.status in (401, 403) or (answer.status == 404 and self._models and self.model not in self._models):
            raise self._refusal(answer, body)
        raise _NotSpoken(f"{answer.status} {answer.problem}")

    async def _same_tokenizer(self, dialect: Completions, prompt: list[int], sampling: Sampling) -> None:
        """A text both tokenize must give the same ids, or every prompt would be another one to the model."""
        body = self._extra | dialect.request(self.model or "", _PROBE, sampling, 1)
        answer = await self._transport.send(dialect.path, body)
        try:
            read = answer.data["choices"][0]["prompt_token_ids"]
        except (KeyError, IndexError, TypeError):
            return  # it does not say
        if read is not None and read != prompt:
            raise BadValue(
                f"the tokenizer is not the one of {self.model!r} at {self.base_url}: {_PROBE!r} is {prompt[:8]} to the "
                f"one and {read[:8]} to the other. Give the tokenizer of the model that is served"
            )


def _text(tokenizer: Tokenizer, said: Said) -> str:
    """What the ids say, read as every engine reads them: a server leaves out half a character at the end, say."""
    by_token = said.finish == "stop" and said.stopped_by is None
    text = str(tokenizer.decode(said.ids[:-1] if by_token else said.ids, skip_special_tokens=False))
    if said.stopped_by is None:
        return text
    at = text.find(said.stopped_by)
    return text[:at] if at >= 0 else said.text


def _plain(sampling: Sampling) -> bool:
    unfiltered = sampling.top_p == 1 and sampling.top_k == 0 and sampling.min_p == 0
    return sampling.temperature == 0 or (sampling.temperature == 1 and unfiltered)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _address(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue(f"base_url is an address such as http://localhost:8000/v1, got {parts.scheme or base_url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadValue("base_url is an address alone; a key goes into api_key=, other headers into headers=")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _key(api_key: str | Path | None) -> str | None:
    if isinstance(api_key, Path):
        try:
            api_key = api_key.read_text()
        except OSError as err:
            raise BadValue(f"the key's file cannot be read: {err}") from err
    key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
    return key.strip() or None


def _loaded(tokenizer: Tokenizer | str | Path | None) -> Tokenizer | None:
    if tokenizer is None or not isinstance(tokenizer, (str, Path)):
        return tokenizer
    auto = require("transformers", extra="hf").AutoTokenizer
    try:
        loaded: Tokenizer = auto.from_pretrained(str(tokenizer))
    except (OSError, ValueError) as err:
        raise BadValue(f"no tokenizer at {str(tokenizer)!r}: {err}") from err
    return loaded

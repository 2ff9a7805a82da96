"""Request and response formats for inference servers: vLLM completions, SGLang generate, OpenAI chat.

The token formats (vLLM completions, SGLang generate) send and receive token ids; the chat format sends messages. vLLM
and SGLang fill in missing sampling parameters from the model's `generation_config.json` (for example temperature 0.6
and top-k 20, or a repetition penalty), so the token formats always send every parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from palestra.engines.base import Finish, Sampling
from palestra.errors import EngineFailed, ParsingFailed
from palestra.types import Message, Observation

_SEED_RANGE = 2**31 - 1  # range of seeds that every server accepts
_FINISHES: dict[str, Finish] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}
_GREEDY = Sampling(max_tokens=1, temperature=0.0)
_IMAGES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReply:
    """A parsed reply from a server."""

    text: str
    finish: Finish
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped_by: str | None = None  # the stop string; None with finish "stop" means a stop token
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    usage: tuple[int, int] | None = None  # (prompt tokens, completion tokens) as counted by the server


class TokenFormat(ABC):
    """A format that sends prompt ids and receives sampled ids with log-probabilities."""

    name: ClassVar[str]
    path: ClassVar[str]  # relative to the base URL, or to the server root if it starts with `//`

    @abstractmethod
    def request(self, model: str, prompt: Any, sampling: Sampling, max_tokens: int) -> dict[str, Any]: ...

    @abstractmethod
    def read(self, response: Any, prompt: list[int] | None) -> ServerReply:
        """Parse a response. Raise EngineFailed if the server's prompt ids differ from `prompt` (None: do not check)."""

    @abstractmethod
    def score_request(self, model: str, ids: list[int]) -> dict[str, Any]:
        """Return the request for the log-probabilities of `ids`."""

    @abstractmethod
    def read_scores(self, response: Any, ids: list[int]) -> list[float]:
        """Return the log-probability of each id in a response; 0 for the first id."""


class CompletionsFormat(TokenFormat):
    """vLLM's `/v1/completions` with `return_token_ids`."""

    name = "completions"
    path = "/completions"

    def request(self, model: str, prompt: Any, sampling: Sampling, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "logprobs": 0,  # return only the sampled token's log-probability
            "return_token_ids": True,
            "skip_special_tokens": False,  # some models use special tokens for tool calls and thinking
            "spaces_between_special_tokens": False,
            "add_special_tokens": False,
        }
        if sampling.stop:
            body["stop"] = sampling.stop
        if sampling.stop_ids:
            body["stop_token_ids"] = sampling.stop_ids
        if sampling.seed is not None:
            body["seed"] = sampling.seed % _SEED_RANGE
        return body

    def read(self, response: Any, prompt: list[int] | None) -> ServerReply:
        choice = _only_choice(response)
        ids = choice.get("token_ids")
        logprobs = choice.get("logprobs")
        if ids is None:
            raise ParsingFailed(f"the response contains {'log-probabilities but ' if logprobs else ''}no token ids")
        if not isinstance(logprobs, Mapping):
            raise ParsingFailed("the response contains no log-probabilities")
        read = choice.get("prompt_token_ids")
        if prompt is not None and read is not None and read != prompt:
            raise EngineFailed(f"the server read a different prompt ({len(read)} tokens, {len(prompt)} were sent)")
        reason = choice.get("finish_reason")
        return _token_reply(ids, logprobs.get("token_logprobs"), choice.get("text"), reason, choice.get("stop_reason"))

    def score_request(self, model: str, ids: list[int]) -> dict[str, Any]:
        return self.request(model, ids, _GREEDY, 1) | {"prompt_logprobs": 0}

    def read_scores(self, response: Any, ids: list[int]) -> list[float]:
        entries = _only_choice(response).get("prompt_logprobs")
        if not isinstance(entries, list):
            raise ParsingFailed("the response contains no prompt_logprobs")
        if len(entries) != len(ids):
            raise ParsingFailed(f"the response contains {len(entries)} prompt_logprobs for {len(ids)} tokens")
        pairs = zip(ids, entries, strict=True)
        return _scores([(entry or {}).get(str(token), {}).get("logprob") for token, entry in pairs], ids)


class GenerateFormat(TokenFormat):
    """SGLang's native `/generate`."""

    name = "generate"
    path = "//generate"

    def request(self, model: str, prompt: Any, sampling: Sampling, max_tokens: int) -> dict[str, Any]:
        del model  # the server serves a single model
        params: dict[str, Any] = {
            "max_new_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        if sampling.stop:
            params["stop"] = sampling.stop
        if sampling.stop_ids:
            params["stop_token_ids"] = sampling.stop_ids
        if sampling.seed is not None:
            params["sampling_seed"] = sampling.seed % _SEED_RANGE
        return {"input_ids": prompt, "sampling_params": params, "return_logprob": True}

    def read(self, response: Any, prompt: list[int] | None) -> ServerReply:
        if not isinstance(response, Mapping) or not isinstance(response.get("meta_info"), Mapping):
            raise ParsingFailed("the response is not in SGLang format: it has no meta_info")
        meta = response["meta_info"]
        pairs = meta.get("output_token_logprobs")
        if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) >= 2 for pair in pairs):
            raise ParsingFailed("the response contains no output_token_logprobs")
        if prompt is not None and meta.get("prompt_tokens", len(prompt)) != len(prompt):
            raise EngineFailed(f"the server read {meta['prompt_tokens']} prompt tokens, but {len(prompt)} were sent")
        finish = meta.get("finish_reason")
        finish = finish if isinstance(finish, Mapping) else {}
        ids, logprobs = [pair[1] for pair in pairs], [pair[0] for pair in pairs]
        return _token_reply(ids, logprobs, response.get("text"), finish.get("type"), finish.get("matched"))

    def score_request(self, model: str, ids: list[int]) -> dict[str, Any]:
        return self.request(model, ids, _GREEDY, 1) | {"logprob_start_len": 0}

    def read_scores(self, response: Any, ids: list[int]) -> list[float]:
        meta = response.get("meta_info") if isinstance(response, Mapping) else None
        entries = meta.get("input_token_logprobs") if isinstance(meta, Mapping) else None
        if not isinstance(entries, list) or not all(isinstance(entry, list) and entry for entry in entries):
            raise ParsingFailed("the response contains no input_token_logprobs")
        return _scores([entry[0] for entry in entries], ids)


def _scores(logprobs: list[Any], ids: list[int]) -> list[float]:
    """Return the log-probabilities of `ids` with 0 for the first id, which has none."""
    if len(logprobs) != len(ids) or not all(isinstance(number, (int, float)) for number in logprobs[1:]):
        raise ParsingFailed(f"the response does not contain the log-probabilities of the {len(ids)} prompt tokens")
    return [0.0, *map(float, logprobs[1:])]


def chat_request(
    model: str,
    messages: Sequence[Message],
    sampling: Sampling,
    tools: Sequence[dict[str, Any]],
    *,
    max_tokens: int,
    limit_field: str,
    complete: bool,
) -> dict[str, Any]:
    """Return the body for `/v1/chat/completions`.

    Strict servers reject unknown fields, so parameters with default values are omitted, unless the server is known to
    accept all of them and to use other defaults (`complete`).
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in messages],
        limit_field: max_tokens,
        "temperature": sampling.temperature,
    }
    if complete or sampling.top_p != 1:
        body["top_p"] = sampling.top_p
    if complete or sampling.top_k:
        body["top_k"] = sampling.top_k or -1
    if complete or sampling.min_p:
        body["min_p"] = sampling.min_p
    if complete:
        body["repetition_penalty"] = 1.0
    if sampling.stop:
        body["stop"] = sampling.stop
    if sampling.stop_ids:
        body["stop_token_ids"] = sampling.stop_ids
    if sampling.seed is not None:
        body["seed"] = sampling.seed % _SEED_RANGE
    if tools:
        body["tools"] = list(tools)
    return body


def read_chat(response: Any) -> ServerReply:
    choice = _only_choice(response)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise ParsingFailed("the response has no message")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if not isinstance(content, str | None):
        raise ParsingFailed(f"the message content must be text or a list of parts, got {type(content).__name__}")
    calls = message.get("tool_calls") or []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ParsingFailed(f"a tool call has no function name: {str(call)[:200]}")
    finish = _finish(choice.get("finish_reason"))
    if finish == "stop" and not calls and not (content or "").strip():
        finish = "empty"
    return ServerReply(text=content or "", finish=finish, tool_calls=calls, usage=_usage(response))


def _usage(response: Any) -> tuple[int, int] | None:
    """Return (prompt tokens, completion tokens) if the server reports them."""
    usage = response.get("usage") if isinstance(response, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return (prompt, completion) if type(prompt) is int and type(completion) is int else None


def _only_choice(response: Any) -> Mapping[str, Any]:
    choices = response.get("choices") if isinstance(response, Mapping) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise ParsingFailed(f"the response must have exactly one choice: {str(response)[:200]}")
    return choices[0]


def _finish(reason: Any) -> Finish:
    if reason in _FINISHES:
        return _FINISHES[reason]
    raise EngineFailed(f"the server ended the reply abnormally: finish_reason {reason!r}")


def _token_reply(ids: Any, logprobs: Any, text: Any, reason: Any, stop: Any) -> ServerReply:
    """Validate a reply's fields. Raise ParsingFailed if one is missing, because training requires all of them."""
    finish = _finish(reason)
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise ParsingFailed(f"the reply's token ids must be a list of integers: {str(ids)[:100]}")
    if not isinstance(logprobs, list) or not all(isinstance(value, float | int) for value in logprobs):
        raise ParsingFailed(f"the reply's log-probabilities must be a list of numbers: {str(logprobs)[:100]}")
    if len(ids) != len(logprobs):
        raise ParsingFailed(f"the reply has {len(ids)} token ids and {len(logprobs)} log-probabilities")
    if not isinstance(text, str):
        raise ParsingFailed(f"the reply's text must be a string, got {type(text).__name__}")
    if max(logprobs) > 1e-3:
        raise EngineFailed(
            f"the server returns log-probabilities up to {max(logprobs):.3g}, so they are logits; "
            "start vLLM with --logprobs-mode raw_logprobs (its default)"
        )
    stopped_by = stop if isinstance(stop, str) else None
    return ServerReply(text=text, finish=finish, ids=ids, logprobs=logprobs, stopped_by=stopped_by)


def _message(message: Message) -> dict[str, Any]:
    return {**message, "content": _content(message.get("content"))}


def _content(content: Observation | None) -> Any:
    """Return a message's content: text unchanged, images as data URLs."""
    if content is None or isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": _data_url(part["image"])}} if part["type"] == "image" else part
        for part in content
    ]


def _data_url(image: bytes) -> str:
    kind = next((kind for start, kind in _IMAGES.items() if image.startswith(start)), "png")
    return f"data:image/{kind};base64,{b64encode(image).decode()}"

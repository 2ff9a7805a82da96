"""Sampling to a request's body, and an answer's body to a reply, for each way of asking a server.

Token dialects (vLLM's completions, SGLang's generate) take ids and show ids; the chat dialect takes messages. A server
may fill in what a request leaves out from the model's `generation_config.json` (vLLM and SGLang do: temperature 0.6 and
top-k 20 for some models, a repetition penalty for others), so the token dialects always say everything.
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

_SEEDS = 2**31 - 1  # servers take seeds of at least so many
_FINISHES: dict[str, Finish] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}
_IMAGES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A reply as a server put it."""

    text: str
    finish: Finish
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped_by: str | None = None  # the stop string; None with finish "stop": the last id
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    usage: tuple[int, int] | None = None  # tokens of prompt and reply, as the server counted them


class TokenDialect(ABC):
    """Ids in, ids and log-probabilities out."""

    name: ClassVar[str]
    path: ClassVar[str]  # beside the base address; from its root where it begins with `//`

    @abstractmethod
    def request(self, model: str, prompt: Any, sampling: Sampling, max_tokens: int) -> dict[str, Any]: ...

    @abstractmethod
    def read(self, answer: Any, prompt: list[int] | None) -> Said:
        """The reply; EngineFailed where the server read another prompt than `prompt` (None: any)."""


class Completions(TokenDialect):
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
            "logprobs": 0,  # of the sampled token alone
            "return_token_ids": True,
            "skip_special_tokens": False,  # some models write tool calls and thinking in them
            "spaces_between_special_tokens": False,
            "add_special_tokens": False,
        }
        if sampling.stop:
            body["stop"] = sampling.stop
        if sampling.stop_ids:
            body["stop_token_ids"] = sampling.stop_ids
        if sampling.seed is not None:
            body["seed"] = sampling.seed % _SEEDS
        return body

    def read(self, answer: Any, prompt: list[int] | None) -> Said:
        choice = _only_choice(answer)
        ids = choice.get("token_ids")
        logprobs = choice.get("logprobs")
        if ids is None:
            raise ParsingFailed(f"the answer shows {'log-probabilities but ' if logprobs else ''}no token ids")
        if not isinstance(logprobs, Mapping):
            raise ParsingFailed("the answer shows no log-probabilities")
        read = choice.get("prompt_token_ids")
        if prompt is not None and read is not None and read != prompt:
            raise EngineFailed(f"the server read another prompt ({len(read)} tokens) than was sent ({len(prompt)})")
        reason = choice.get("finish_reason")
        return _checked(ids, logprobs.get("token_logprobs"), choice.get("text"), reason, choice.get("stop_reason"))


class Generate(TokenDialect):
    """SGLang's own `/generate`."""

    name = "generate"
    path = "//generate"

    def request(self, model: str, prompt: Any, sampling: Sampling, max_tokens: int) -> dict[str, Any]:
        del model  # it serves one
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
            params["sampling_seed"] = sampling.seed % _SEEDS
        return {"input_ids": prompt, "sampling_params": params, "return_logprob": True}

    def read(self, answer: Any, prompt: list[int] | None) -> Said:
        if not isinstance(answer, Mapping) or not isinstance(answer.get("meta_info"), Mapping):
            raise ParsingFailed("the answer is no SGLang one: it has no meta_info")
        meta = answer["meta_info"]
        pairs = meta.get("output_token_logprobs")
        if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) >= 2 for pair in pairs):
            raise ParsingFailed("the answer shows no output_token_logprobs")
        if prompt is not None and meta.get("prompt_tokens", len(prompt)) != len(prompt):
            raise EngineFailed(f"the server read {meta['prompt_tokens']} tokens of the {len(prompt)} that were sent")
        finish = meta.get("finish_reason")
        finish = finish if isinstance(finish, Mapping) else {}
        ids, logprobs = [pair[1] for pair in pairs], [pair[0] for pair in pairs]
        return _checked(ids, logprobs, answer.get("text"), finish.get("type"), finish.get("matched"))


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
    """The body for `/v1/chat/completions`. A strict server refuses fields it does not know, so what is at its default
    is left out, unless the server is known to take (and to have defaults of its own for) all of them: `complete`.
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
        body["seed"] = sampling.seed % _SEEDS
    if tools:
        body["tools"] = list(tools)
    return body


def read_chat(answer: Any) -> Said:
    choice = _only_choice(answer)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise ParsingFailed("the answer has no message")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if not isinstance(content, str | None):
        raise ParsingFailed(f"the message's content is neither text nor parts but {type(content).__name__}")
    calls = message.get("tool_calls") or []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ParsingFailed(f"a tool call without a function's name: {str(call)[:200]}")
    finish = _finish(choice.get("finish_reason"))
    return Said(text=content or "", finish=finish, tool_calls=calls, usage=_usage(answer))


def _usage(answer: Any) -> tuple[int, int] | None:
    """What a server says it read and wrote; None where it does not say."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    read, wrote = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return (read, wrote) if type(read) is int and type(wrote) is int else None


def _only_choice(answer: Any) -> Mapping[str, Any]:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise ParsingFailed(f"the answer has not one choice: {str(answer)[:200]}")
    return choices[0]


def _finish(reason: Any) -> Finish:
    if reason in _FINISHES:
        return _FINISHES[reason]
    raise EngineFailed(f"the server broke the reply off: finish_reason {reason!r}")


def _checked(ids: Any, logprobs: Any, text: Any, reason: Any, stop: Any) -> Said:
    """Everything there and of one length, or ParsingFailed: half a reply must not be trained on."""
    finish = _finish(reason)
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise ParsingFailed(f"the reply's token ids are no list of whole numbers: {str(ids)[:100]}")
    if not isinstance(logprobs, list) or not all(isinstance(value, float | int) for value in logprobs):
        raise ParsingFailed(f"the reply's log-probabilities are no list of numbers: {str(logprobs)[:100]}")
    if len(ids) != len(logprobs):
        raise ParsingFailed(f"the reply has {len(ids)} token ids and {len(logprobs)} log-probabilities")
    if not isinstance(text, str):
        raise ParsingFailed(f"the reply's text is {type(text).__name__}")
    if max(logprobs) > 1e-3:
        raise EngineFailed(
            f"the server's log-probabilities reach {max(logprobs):.3g}, so they are logits; "
            "start vLLM with --logprobs-mode raw_logprobs (its default)"
        )
    stopped_by = stop if isinstance(stop, str) else None
    return Said(text=text, finish=finish, ids=ids, logprobs=logprobs, stopped_by=stopped_by)


def _message(message: Message) -> dict[str, Any]:
    return {**message, "content": _content(message.get("content"))}


def _content(content: Observation | None) -> Any:
    """Text as it is; pictures as data addresses."""
    if content is None or isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": _address(part["image"])}} if part["type"] == "image" else part
        for part in content
    ]


def _address(image: bytes) -> str:
    kind = next((kind for start, kind in _IMAGES.items() if image.startswith(start)), "png")
    return f"data:image/{kind};base64,{b64encode(image).decode()}"

"""Serve an engine as an OpenAI-compatible chat server, for frameworks that sample over HTTP.

    async with ChatServer(LocalEngine(model, tokenizer=tokenizer)) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="none")

Tokens in `logprobs` are written as `token_id:ID`, so that trainers get the exact ids. As in vLLM, `return_token_ids` in
a request adds the ids of the prompt and of each reply. A streamed reply is sent when it is complete. Tools are not
supported.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from palestra.engines.base import Completion, Engine, Sampling
from palestra.errors import BadValue, PalestraError
from palestra.optional import require

if TYPE_CHECKING:
    from aiohttp import web
else:
    web = require("aiohttp.web", extra="openai")

__all__ = ["ChatServer"]


class ChatServer:
    """Chat server for one engine with a tokenizer. It runs on the caller's event loop."""

    def __init__(self, engine: Engine, *, model: str = "local", host: str = "127.0.0.1", port: int = 0) -> None:
        if engine.tokenizer is None:
            raise BadValue("the chat server needs an engine with a tokenizer, such as LocalEngine")
        self.engine = engine
        self.tokenizer = engine.tokenizer
        self.model = model
        self.url = ""
        self._address = host, port
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, *self._address)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            prompt = self._prompt(body["messages"])
            sampling = _sampling(body)
            completions = [await self.engine.generate(prompt, sampling) for _ in range(int(body.get("n") or 1))]
        except (KeyError, TypeError, ValueError, BadValue) as err:
            return web.json_response({"error": {"message": f"invalid request: {err}", "code": 400}}, status=400)
        except PalestraError as err:
            return web.json_response({"error": {"message": str(err), "code": 500}}, status=500)
        response = self._response(prompt, completions, logprobs=bool(body.get("logprobs")))
        if body.get("return_token_ids"):
            response["prompt_token_ids"] = prompt
            for choice, completion in zip(response["choices"], completions, strict=True):
                choice["token_ids"] = completion.ids
        if not body.get("stream"):
            return web.json_response(response)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await stream.prepare(request)
        for chunk in _chunks(response, usage=bool((body.get("stream_options") or {}).get("include_usage"))):
            await stream.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await stream.write(b"data: [DONE]\n\n")
        await stream.write_eof()
        return stream

    def _prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        plain = [{**message, "content": _text(message.get("content"))} for message in messages]
        text = self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _response(self, prompt: list[int], completions: list[Completion], *, logprobs: bool) -> dict[str, Any]:
        sampled = sum(len(completion.ids) for completion in completions)
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": completion.text},
                    "finish_reason": "length" if completion.finish == "length" else "stop",
                    "logprobs": {"content": self._logprobs(completion)} if logprobs else None,
                }
                for index, completion in enumerate(completions)
            ],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": sampled,
                "total_tokens": len(prompt) + sampled,
            },
        }

    def _logprobs(self, completion: Completion) -> list[dict[str, Any]]:
        return [
            {
                "token": f"token_id:{token}",
                "logprob": value,
                "bytes": list(str(self.tokenizer.decode([token], skip_special_tokens=False)).encode()),
                "top_logprobs": [],
            }
            for token, value in zip(completion.ids, completion.logprobs, strict=True)
        ]


def _chunks(response: dict[str, Any], *, usage: bool) -> Iterator[dict[str, Any]]:
    """Return the chunks of a streamed response: the message and finish reason of each choice, then the usage."""
    head = {**{key: response[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    for choice in response["choices"]:
        first = {"index": choice["index"], "delta": choice["message"], "logprobs": choice["logprobs"]}
        last = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        yield {**head, "choices": [{**first, "finish_reason": None}]}
        yield {**head, "choices": [last]}
    if usage:
        yield {**head, "choices": [], "usage": response["usage"]}


def _sampling(body: dict[str, Any]) -> Sampling:
    stop = body.get("stop") or ()
    return Sampling(
        max_tokens=int(body.get("max_completion_tokens") or body.get("max_tokens") or 512),
        temperature=float(1.0 if body.get("temperature") is None else body["temperature"]),
        top_p=float(1.0 if body.get("top_p") is None else body["top_p"]),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        seed=body.get("seed"),
    )


def _text(content: Any) -> str:
    """Return the text of a message, whose content is a string or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""

"""HTTP server that imitates vLLM, SGLang or a plain OpenAI-compatible server, with faults on demand.

It runs in a thread and serves a toy model over the ids of ByteTokenizer, whose logits depend only on the last token.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

from aiohttp import web

from palestra.engines import ByteTokenizer

TOKENIZER = ByteTokenizer()
EOS = TOKENIZER.eos_token_id
Fault: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | None]]  # None: respond normally


@cache
def distribution(last: int) -> list[float]:
    """Return the toy model's log-probabilities for the token after `last`."""
    chance = random.Random(last)
    return log_softmax([chance.gauss(0, 2) for _ in range(len(TOKENIZER))])


def log_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    total = top + math.log(sum(math.exp(value - top) for value in logits))
    return [value - total for value in logits]


class Stub:
    """Test server (`with Stub() as server:`) that is reachable at `server.url`; its attributes control its behavior."""

    def __init__(
        self,
        kind: Literal["vllm", "sglang", "plain"] = "vllm",
        *,
        context: int = 256,
        processed: bool = False,  # return log-probabilities after temperature scaling, as some servers do
        key: str | None = None,
        reply: dict[str, Any] | None = None,  # message returned by chat requests
    ) -> None:
        self.kind = kind
        self.context = context
        self.processed = processed
        self.key = key
        self.reply = reply
        self.models: list[dict[str, Any]] = [{"id": "toy"}]
        if kind != "plain":
            self.models[0] |= {"owned_by": kind, "max_model_len": context}
        self.rejected_fields: dict[str, str] = {}  # field -> error message
        self.faults: dict[str, list[Fault]] = {}  # faults by path; each is used once, in order
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []  # path, body, headers
        self.running = self.peak = self.aborted = self.connections = 0
        self.pause = 0.0
        # For requests without a seed. An empty reply, which the engine requests again, is rare but possible, and tests
        # count requests, so the sampled replies must be the same in every run.
        self._chance = random.Random(0)
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for at, body, _ in self.requests if at == path]

    def count(self, path: str) -> int:
        return len(self.bodies(path))

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(120)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner is not None
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        # A request is canceled when its client disconnects, as in vLLM.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"

    @property
    def open_connections(self) -> int:
        assert self._runner is not None
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        self.requests.append((path, body, dict(request.headers)))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.pause)
            faults = self.faults.get(path)
            if faults:
                response = await faults.pop(0)(request)
                if response is not None:
                    return response
            return self._respond(request, path, body)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    def _respond(self, request: web.Request, path: str, body: dict[str, Any]) -> web.Response:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return problem(401, f"Incorrect API key provided: {request.headers.get('Authorization', '')}")
        if path == "/v1/models":
            return web.json_response({"object": "list", "data": self.models})
        for field, message in self.rejected_fields.items():
            if field in body:
                return problem(400, message)
        if path == "/generate" and self.kind == "sglang":
            return self._generate(body)
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return problem(404, "Not Found")
        if body["model"] not in [card["id"] for card in self.models]:
            return problem(404, f"The model `{body['model']}` does not exist.")
        if path == "/v1/chat/completions":
            return self._chat(body)
        return self._completions(body)

    def _completions(self, body: dict[str, Any]) -> web.Response:
        prompt = body["prompt"]
        prompt = TOKENIZER.encode(prompt) if isinstance(prompt, str) else prompt
        error = self._too_long(len(prompt))
        if error is not None:
            return error
        ids, logprobs, reason, stop = self._sample(prompt, body, body["max_tokens"])
        with_ids = self.kind == "vllm" and body.get("return_token_ids", False)
        choice = {
            "index": 0,
            "text": self._text(ids, reason, stop),
            "finish_reason": reason,
            "stop_reason": stop,
            "logprobs": {"token_logprobs": logprobs, "tokens": [TOKENIZER.decode(token) for token in ids]},
            "token_ids": ids if with_ids else None,
            "prompt_token_ids": prompt if with_ids else None,
        }
        if "prompt_logprobs" in body:
            scores = [{str(t): {"logprob": distribution(last)[t]}} for last, t in pairwise(prompt)]
            choice["prompt_logprobs"] = [None, *scores]
        return web.json_response({"object": "text_completion", "model": body["model"], "choices": [choice]})

    def _generate(self, body: dict[str, Any]) -> web.Response:
        prompt = body["input_ids"]
        params = body["sampling_params"]
        error = self._too_long(len(prompt))
        if error is not None:
            return error
        ids, logprobs, reason, stop = self._sample(prompt, params, params["max_new_tokens"])
        matched = EOS if reason == "stop" and stop is None else stop
        meta = {
            "prompt_tokens": len(prompt),
            "finish_reason": {"type": reason, "matched": matched},
            "output_token_logprobs": [[value, token, None] for value, token in zip(logprobs, ids, strict=True)],
        }
        if body.get("logprob_start_len") == 0:
            scored = [[distribution(last)[token], token, None] for last, token in pairwise(prompt)]
            meta["input_token_logprobs"] = [[None, prompt[0], None], *scored]
        return web.json_response({"text": self._text(ids, reason, stop), "output_ids": ids, "meta_info": meta})

    def _chat(self, body: dict[str, Any]) -> web.Response:
        prompt = TOKENIZER.apply_chat_template(
            [{**message, "content": as_text(message["content"])} for message in body["messages"]],
            tools=body.get("tools"),
            add_generation_prompt=True,
        )
        error = self._too_long(len(prompt))
        if error is not None:
            return error
        limit = min(body.get("max_tokens") or body["max_completion_tokens"], self.context - len(prompt))
        ids, _, reason, stop = self._sample(prompt, body, limit)
        message = self.reply or {"role": "assistant", "content": self._text(ids, reason, stop)}
        if self.reply:
            reason = "tool_calls" if message.get("tool_calls") else "stop"
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
        response = {"object": "chat.completion", "model": body["model"], "choices": choices, "usage": usage}
        return web.json_response(response)

    def _too_long(self, length: int) -> web.Response | None:
        if length < self.context:
            return None
        message = (
            f"This model's maximum context length is {self.context} tokens, your prompt contains {length} input tokens."
        )
        return problem(400, message)

    def _text(self, ids: list[int], reason: str, stop: int | str | None) -> str:
        if isinstance(stop, str):
            return TOKENIZER.decode(ids).split(stop)[0]
        return TOKENIZER.decode(ids[:-1] if reason == "stop" else ids)

    def _sample(
        self, prompt: list[int], params: dict[str, Any], limit: int
    ) -> tuple[list[int], list[float], str, int | str | None]:
        seed = params.get("seed", params.get("sampling_seed"))
        chance = self._chance if seed is None else random.Random(seed)
        temperature = params["temperature"]
        ids: list[int] = []
        logprobs: list[float] = []
        for _ in range(limit):
            raw = distribution((prompt + ids)[-1])
            reported = raw
            if temperature == 0:
                token = max(range(len(raw)), key=raw.__getitem__)
            else:
                scaled = log_softmax([value / temperature for value in raw])
                best = sorted(range(len(raw)), key=raw.__getitem__, reverse=True)
                best = best[: params["top_k"]] if params.get("top_k", -1) > 0 else best
                token = chance.choices(best, [math.exp(scaled[i]) for i in best])[0]
                reported = scaled if self.processed else raw
            ids.append(token)
            logprobs.append(reported[token])
            if token == EOS:
                return ids, logprobs, "stop", None
            if token in params.get("stop_token_ids", ()):
                return ids, logprobs, "stop", token
            for stop in params.get("stop", ()):
                if stop in TOKENIZER.decode(ids):
                    return ids, logprobs, "stop", stop
        return ids, logprobs, "length", None


def as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "[image]") for part in content or ())


def problem(status: int, message: str, **headers: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


def rejects(status: int, message: str = "no", **headers: str) -> Fault:
    async def fault(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return problem(status, message, **named)

    return fault


def responds_with(body: str | bytes | dict[str, Any] | list[Any], status: int = 200) -> Fault:
    """Return a fault that responds with this body."""

    async def fault(_: web.Request) -> web.StreamResponse:
        raw = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(body=raw, status=status, content_type="application/json")

    return fault


async def disconnects(request: web.Request) -> web.StreamResponse | None:
    """Close the connection without a response."""
    assert request.transport is not None
    request.transport.close()
    return None


async def disconnects_midway(request: web.Request) -> web.StreamResponse:
    """Close the connection in the middle of the response."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.close()
    return response


def delays(seconds: float) -> Fault:
    async def fault(_: web.Request) -> web.StreamResponse | None:
        await asyncio.sleep(seconds)
        return None

    return fault

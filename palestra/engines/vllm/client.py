"""HTTP client for one vLLM server: sampling that can be interrupted, and the requests that control the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from palestra.engines.base import Sampling
from palestra.engines.http_transport import HttpTransport
from palestra.engines.openai import OpenAIEngine
from palestra.engines.openai_formats import ServerReply
from palestra.errors import BadValue, EngineFailed, ParsingFailed

CONTROL_TIMEOUT = 1800.0  # seconds for one request that updates weights
SAMPLING_TIMEOUT = 1800.0  # seconds for one reply
HEALTH_TIMEOUT = 60.0  # seconds after which a server that accepts connections but does not respond is restarted


class Interrupted(NamedTuple):
    """The tokens that were sampled before the server stopped a request for a weight update."""

    ids: list[int]
    logprobs: list[float]


class VLLMClient(OpenAIEngine):
    """An `OpenAIEngine` for a vLLM server that is paused, updated and resumed by a trainer."""

    def __init__(self, url: str, *, tokenizer: Any, concurrency: int, max_context: int | None = None) -> None:
        super().__init__(
            url,
            tokenizer=tokenizer,
            exact=True,
            concurrency=concurrency,
            timeout=SAMPLING_TIMEOUT,
            retries=0,  # `VLLMEngine` retries, on another server if this one has stopped
            max_context=max_context,
        )
        self.root = self.base_url.removesuffix("/v1")
        self.base_model: str | None = None  # the served model; `model` may be one of its LoRA adapters
        self._control = self._transport_for(CONTROL_TIMEOUT)
        self._health = self._transport_for(HEALTH_TIMEOUT)

    def _transport_for(self, timeout: float) -> HttpTransport:
        return HttpTransport(
            self.root,
            headers={"Content-Type": "application/json"},
            secret=None,
            concurrency=8,
            timeout=timeout,
            retries=0,
            backoff=0.0,
        )

    async def ready(self) -> None:
        """Detect the model, its context length, and that the server returns token ids. Idempotent."""
        await super().ready()
        self.base_model = self.base_model or self.model

    async def sample(self, prompt: list[int], sampling: Sampling) -> ServerReply | Interrupted:
        """Sample a reply, or return its first tokens if the server is paused in the meantime."""
        await self.ready()
        if self._format is None:
            raise BadValue(f"{self.base_url} returns no token ids")
        body = self._token_request(self._format, prompt, sampling)
        response = await self._transport.send(self._path(self._format), body)
        choices = response.data.get("choices") if isinstance(response.data, Mapping) else None
        if choices and choices[0].get("finish_reason") == "abort":
            logprobs = (choices[0].get("logprobs") or {}).get("token_logprobs") or []
            return Interrupted(ids=list(choices[0].get("token_ids") or ()), logprobs=list(logprobs))
        return self._read(partial(self._format.read, prompt=prompt), response, body)

    async def control(self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST") -> Any:
        """Send a request outside of /v1 and return the data in the response; raise EngineFailed if it is refused."""
        try:
            response = await self._control.send(path, (body or {}) if method == "POST" else None)
        except ParsingFailed:
            return None  # successful, with a body that is not JSON
        if not response.ok:
            message = f"{self.root}{path} returned {response.status}: {response.error}"
            if response.status == 404:
                message += ". Start the server with VLLM_SERVER_DEV_MODE=1, which enables weight updates"
            raise EngineFailed(message)
        return response.data

    async def call_workers(self, method: str, *args: str, **kwargs: Any) -> list[Any]:
        """Call a method of the server's workers and return the result of each worker."""
        data = await self.control("/collective_rpc", {"method": method, "args": list(args), "kwargs": kwargs})
        results: list[Any] = data["results"] if isinstance(data, Mapping) else []
        return results

    async def pause(self, *, clear_cache: bool) -> None:
        """Interrupt the replies in progress, and keep new requests waiting; `clear_cache` empties the prefix cache."""
        await self.control(f"/pause?mode=abort&clear_cache={'true' if clear_cache else 'false'}")

    async def resume(self) -> None:
        """Continue with the requests that have been waiting."""
        await self.control("/resume")

    async def set_weight_version(self, version: int) -> None:
        """Record the version of the server's weights, which other processes may wait for."""
        await self.control("/update_weight_version", {"new_version": str(version)})

    async def weight_version(self) -> str | None:
        """Return the version of the server's weights, or None if it does not answer."""
        try:
            data = await self.control("/weight_info", method="GET")
        except EngineFailed:
            return None
        return str(data["weight_version"]) if isinstance(data, Mapping) else None

    async def healthy(self) -> bool:
        """Return whether the server and its model process respond."""
        try:
            return (await self._health.send("/health")).ok
        except ParsingFailed:
            return True  # the response has no body
        except EngineFailed:
            return False

    async def score_all(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probabilities of the ids in every sequence."""
        return [await self.score(ids) for ids in sequences]

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (self._transport, self._control, self._health):
            await transport.aclose()

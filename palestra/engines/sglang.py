"""Policy engine that samples from running SGLang servers and updates their weights from files.

It follows SGLang's documented HTTP interface and shares routing, interruptions and the check after every update with
`VLLMEngine`. It has not been run with a real server, because SGLang could not be installed on our machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from palestra.engines.base import Sampling
from palestra.engines.openai_formats import ServerReply
from palestra.engines.vllm.client import Interrupted, VLLMClient
from palestra.engines.vllm.commands import write_model
from palestra.engines.vllm.engine import VLLMEngine
from palestra.engines.vllm.transfer import StoredTransfer, WeightTransfer
from palestra.errors import BadValue, EngineFailed

_HINT = "start the server with SGLANG_RETURN_ORIGINAL_LOGPROB=1, or train at temperature 1"


class SGLangClient(VLLMClient):
    """Client for one SGLang server: it samples with `/generate` and sends the requests that control the server."""

    async def sample(self, prompt: list[int], sampling: Sampling) -> ServerReply | Interrupted:
        await self.ready()
        token_format = self._format
        if token_format is None or token_format.name != "generate":
            raise BadValue(f"{self.base_url} is not an SGLang server: it has no /generate; use --engine vllm")
        if self._scaled and sampling.temperature not in (0, 1):
            raise BadValue(f"{self.base_url} returns log-probabilities at the sampling temperature; {_HINT}")
        body = self._token_request(token_format, prompt, sampling)
        response = await self._transport.send(self._path(token_format), body)
        meta = response.data.get("meta_info") if isinstance(response.data, Mapping) else None
        finish = meta.get("finish_reason") if isinstance(meta, Mapping) else None
        if isinstance(meta, Mapping) and isinstance(finish, Mapping) and finish.get("type") == "abort":
            pairs = meta.get("output_token_logprobs") or []
            return Interrupted(ids=[pair[1] for pair in pairs], logprobs=[pair[0] for pair in pairs])
        return self._read(partial(token_format.read, prompt=prompt), response, body)

    async def pause(self, *, clear_cache: bool) -> None:
        await self.control("/pause_generation", {"mode": "abort"})
        if clear_cache:
            await self.control("/flush_cache")

    async def resume(self) -> None:
        await self.control("/continue_generation")

    async def set_weight_version(self, version: int) -> None:
        """Do nothing, because the update has already set the version."""

    async def weight_version(self) -> str | None:
        try:
            data = await self.control("/model_info", method="GET")
        except EngineFailed:
            return None
        return str(data.get("weight_version")) if isinstance(data, Mapping) else None


class DiskTransfer(StoredTransfer):
    """SGLang's `/update_weights_from_disk`, which reads a checkpoint from a folder that it shares with the trainer."""

    name = "disk"

    def __init__(self, folder: Path, model: Any, tokenizer: Any) -> None:
        super().__init__(folder)
        self._model = model
        self._tokenizer = tokenizer

    def prepare(self, weights: Mapping[str, Any], version: int) -> None:
        self.write(weights, self.path(version) / "model.safetensors")
        write_model(self._model, self._tokenizer, self.path(version))

    async def apply(self, client: VLLMClient, version: int) -> None:
        body = {
            "model_path": str(self.path(version).resolve()),
            "weight_version": str(version),
            "flush_cache": True,
            "abort_all_requests": True,
        }
        reply = await client.control("/update_weights_from_disk", body)
        if not (isinstance(reply, Mapping) and reply.get("success")):
            message = reply.get("message") if isinstance(reply, Mapping) else reply
            raise EngineFailed(f"{client.root} did not load the new weights: {message}")


class SGLangEngine(VLLMEngine):
    """Samples from SGLang servers at `urls`. LoRA adapters are merged into the weights that are sent.

    The options are those of `VLLMEngine` that do not start servers. SGLang reports no fingerprints, so the check after
    an update cannot name the parameters that differ.
    """

    supports_lora = False
    client_class: ClassVar[type[VLLMClient]] = SGLangClient

    def __init__(self, model: Any, *, tokenizer: Any, urls: Sequence[str] = (), **options: Any) -> None:
        if not urls:
            raise BadValue(
                "the sglang engine needs running servers: pass --engine-url http://localhost:30000/v1 for each of them"
            )
        unsupported = sorted({"gpus", "servers", "update", "colocate", "python", "arguments"} & options.keys())
        if unsupported:
            raise BadValue(f"the sglang engine starts no servers, so these settings do not apply: {unsupported}")
        super().__init__(model, tokenizer=tokenizer, urls=urls, **options)

    def _make_transfer(self, folder: Path, workers_per_server: int) -> WeightTransfer:  # noqa: ARG002  # same for all
        return DiskTransfer(folder, self.model, self.tokenizer)

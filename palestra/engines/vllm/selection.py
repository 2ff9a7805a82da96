"""Choose how weights are sent to a run's vLLM servers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from palestra.engines.vllm import gpu
from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.transfer import FileTransfer, LoraTransfer, ReloadTransfer, WeightTransfer
from palestra.engines.vllm.worker import BACKEND
from palestra.errors import BadValue, EngineFailed

_LOG = logging.getLogger(__name__)

Update = Literal["auto", "files", "reload", "nccl", "ipc"]


def make_transfer(update: Update, model: Any, folder: Path, *, workers_per_server: int) -> WeightTransfer:
    """Return the transfer for `update`; "auto" means "files". Models with LoRA adapters use a separate transfer."""
    if getattr(model, "peft_config", None):
        return LoraTransfer(folder, model)
    if update in ("nccl", "ipc"):
        backend: Literal["nccl", "ipc"] = "nccl" if update == "nccl" else "ipc"
        return gpu.GpuTransfer(backend, workers_per_server=workers_per_server)
    return ReloadTransfer(folder) if update == "reload" else FileTransfer(folder)


async def supported_transfer(transfer: WeightTransfer, clients: Sequence[VLLMClient], update: Update) -> WeightTransfer:
    """Return the transfer for servers at given URLs: files, or `reload_weights` if they lack Palestra's extension."""
    if not isinstance(transfer, FileTransfer):
        return transfer
    for client in clients:
        try:
            status = await client.call_workers("palestra_status")
            complete = all(worker["files"] for worker in status)
        except EngineFailed:
            complete = False
        if not complete and update == "auto":
            _LOG.warning("%s has no Palestra worker extension; using vLLM's reload_weights", client.base_url)
            return ReloadTransfer(transfer.folder)
        if not complete:
            raise BadValue(
                f"{client.base_url} cannot read weight files; start it with --worker-extension-cls "
                "palestra.engines.vllm.worker.PolicyWorker and --weight-transfer-config "
                f'\'{{"backend": "{BACKEND}"}}\', or use update="reload"'
            )
    return transfer

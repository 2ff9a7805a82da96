"""Update the weights of vLLM servers: through files, by reloading a checkpoint, or by loading a LoRA adapter.

Every method has two parts: `prepare` writes the data for a version once, and `apply` makes one server use it. The
latest version is applied to a server that starts later. Transfers between GPUs are in `gpu.py`.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from palestra.engines.adapter_files import ADAPTER_NAME, save_adapter
from palestra.engines.vllm.client import VLLMClient
from palestra.errors import BadValue, EngineFailed, StoreFailed

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values of vLLM's --max-lora-rank


class WeightTransfer(ABC):
    """A way to update the weights of servers. Versions are consecutive numbers, starting at 1."""

    name: ClassVar[str]

    def prepare(self, weights: Mapping[str, Any], version: int) -> None:
        """Make the weights of a version available to `apply`."""

    @abstractmethod
    async def apply(self, client: VLLMClient, version: int) -> None:
        """Make one paused server use the weights of `version`, the latest that was prepared."""

    def finished(self, version: int) -> None:
        """Delete the data of all versions before `version`."""

    def close(self) -> None:
        """Delete everything."""


class StoredTransfer(WeightTransfer):
    """A transfer through a folder that the trainer and the servers share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, version: int) -> Path:
        return self.folder / f"version-{version}"

    def finished(self, version: int) -> None:
        for path in self.folder.glob("version-*"):
            if path != self.path(version):
                _delete(path)

    def close(self) -> None:
        for path in self.folder.glob("version-*"):
            _delete(path)

    def write(self, tensors: Mapping[str, Any], path: Path) -> None:
        """Write tensors to a safetensors file."""
        from safetensors.torch import save_file

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, path)
        except OSError as err:
            raise StoreFailed(f"cannot write the weights for the vLLM servers to {path}: {err}") from err


class FileTransfer(StoredTransfer):
    """vLLM's weight-transfer interface with Palestra's backend, which reads safetensors files.

    The servers need `--worker-extension-cls palestra.engines.vllm.worker.PolicyWorker`.
    """

    name = "files"

    def prepare(self, weights: Mapping[str, Any], version: int) -> None:
        self.write(weights, self.path(version) / "model.safetensors")

    async def apply(self, client: VLLMClient, version: int) -> None:
        path = self.path(version) / "model.safetensors"
        await client.control("/start_weight_update")
        await client.control("/update_weights", {"update_info": {"path": str(path.resolve())}})
        await client.control("/finish_weight_update")


class ReloadTransfer(StoredTransfer):
    """vLLM's `reload_weights`, for servers without Palestra's worker extension.

    In vLLM 0.32 for CPUs it leaves the output layer of a model with tied embeddings unchanged; the check after the
    update then stops the run.
    """

    name = "reload"

    def prepare(self, weights: Mapping[str, Any], version: int) -> None:
        self.write(weights, self.path(version) / "model.safetensors")

    async def apply(self, client: VLLMClient, version: int) -> None:
        await client.call_workers("reload_weights", weights_path=str(self.path(version).resolve()))


class LoraTransfer(StoredTransfer):
    """Adapters loaded at run time. Every version has its own name, so that no other version's cached prefix is used."""

    name = "lora"

    def __init__(self, folder: Path, model: Any) -> None:
        super().__init__(folder)
        self._model = model

    def prepare(self, weights: Mapping[str, Any], version: int) -> None:
        save_adapter(self._model, weights, self.path(version))

    async def apply(self, client: VLLMClient, version: int) -> None:
        body = {"lora_name": lora_name(version), "lora_path": str(self.path(version).resolve())}
        try:
            await client.control("/v1/load_lora_adapter", body)
        except EngineFailed as err:
            raise EngineFailed(
                f"{err}. A server for LoRA needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            ) from err
        previous, client.model = client.model, lora_name(version)
        if previous is not None and previous.startswith(lora_name("")):
            await client.control("/v1/unload_lora_adapter", {"lora_name": previous})


def lora_name(version: int | str) -> str:
    """Return the name under which servers know a version of the adapter."""
    return f"palestra-policy-{version}"


def max_lora_rank(model: Any) -> int:
    """Return the smallest value of --max-lora-rank that admits the model's adapter."""
    rank = model.peft_config[ADAPTER_NAME].r
    if rank > LORA_RANKS[-1]:
        raise BadValue(f"vLLM supports LoRA ranks up to {LORA_RANKS[-1]}, got --lora-rank {rank}")
    return min(size for size in LORA_RANKS if size >= rank)


def base_weights(model: Any) -> dict[str, Any]:
    """Return the weights of a model without its LoRA adapters, under their names in the checkpoint."""
    return {
        name.replace(".base_layer.", "."): tensor.detach()
        for name, tensor in model.named_parameters()
        if ".lora_" not in name
    }


def _delete(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)

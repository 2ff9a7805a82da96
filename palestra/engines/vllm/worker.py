"""Code that runs in a vLLM server: a weight-transfer backend that reads files, and fingerprints of the weights.

`vllm serve --worker-extension-cls palestra.engines.vllm.worker.PolicyWorker` imports this module in every worker, which
registers the `palestra_files` backend with vLLM. A trainer then updates the weights through vLLM's own interface:
/init_weight_transfer_engine, /start_weight_update, /update_weights and /finish_weight_update. The server's environment
needs vLLM but none of the packages that Palestra uses elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from palestra.engines.vllm.fingerprints import TIED, direction, summary

BACKEND = "palestra_files"


class PolicyWorker:
    """Methods added to vLLM's worker class, which a trainer calls through /collective_rpc."""

    model_runner: Any

    def palestra_fingerprints(self) -> dict[str, list[float]]:
        """Return a fingerprint of every parameter by its name in the checkpoint."""
        return dict(_fingerprints(self.model_runner.get_model()))

    def palestra_status(self) -> dict[str, Any]:
        """Return whether this worker can read weight files."""
        return {"backend": BACKEND, "files": getattr(self, "weight_transfer_engine", None) is not None}


def _fingerprints(model: Any) -> Iterator[tuple[str, list[float]]]:
    """Yield the name and fingerprint of every parameter, split where vLLM merges several parameters into one."""
    import torch

    packed = getattr(model, "packed_modules_mapping", {})
    done = set()
    for name, module in model.named_modules():
        name = name.removesuffix(".base_layer")
        method = getattr(module, "quant_method", None)
        if method is None or not hasattr(module, "weight") or hasattr(module, "base_layer") or name in done:
            continue
        if hasattr(module, "org_vocab_size"):  # embeddings and the output layer, padded to a multiple of 64 rows
            size = module.embedding_dim
            head = name == TIED.removesuffix(".weight")
            vector = direction(size).to(module.weight)
            output = method.apply(module, vector[None])[0] if head else module.weight @ vector
            parts = [output[: module.org_vocab_size]]
            names = [name]
        elif hasattr(module, "input_size_per_partition"):
            vector = direction(module.input_size_per_partition).to(_dtype(module, model), copy=True)
            with torch.no_grad():
                output = method.apply(module, vector[None].to(_device(module)), None)[0]
            last = name.rpartition(".")[2]
            names = [name[: -len(last)] + part for part in packed.get(last, [last])]
            sizes = getattr(module, "output_partition_sizes", None) or [len(output)]
            parts = list(output.split(sizes)) if len(sizes) == len(names) else [output]
            names = names if len(parts) == len(names) else [name]
        else:
            continue
        done.add(name)
        for part_name, part in zip(names, parts, strict=True):
            yield f"{part_name}.weight", summary(part)
    for name, parameter in model.named_parameters():
        owner = name.rpartition(".")[0].removesuffix(".base_layer")
        if owner not in done and parameter.dim() == 1 and ".lora_" not in name:
            yield name, summary(parameter)


def _dtype(module: Any, model: Any) -> Any:
    """Return the data type of a layer's inputs; a packed weight is an empty tensor of that type."""
    weight = getattr(module, "weight", None)
    return next(model.parameters()).dtype if weight is None else weight.dtype


def _device(module: Any) -> Any:
    return module.weight.device


@dataclass
class FileInitInfo:
    """Argument of /init_weight_transfer_engine, which has no fields."""


@dataclass
class FileUpdateInfo:
    """Argument of /update_weights: a safetensors file with parameters under their names in the checkpoint."""

    path: str


def register_backend() -> None:
    """Register the `palestra_files` backend, which reads the weights for an update from safetensors files."""
    from safetensors import safe_open
    from vllm.distributed.weight_transfer.base import WeightTransferEngine
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    class FileWeightTransferEngine(WeightTransferEngine):  # type: ignore[misc]
        """Loads weights from files between `start_weight_update` and `finish_weight_update`."""

        init_info_cls = FileInitInfo
        update_info_cls = FileUpdateInfo

        def init_transfer_engine(self, init_info: FileInitInfo) -> None:
            """Do nothing: files need no connection."""

        def start_weight_update(self) -> None:
            self._loaded: set[str] = set()
            self._expected = {name for name, _ in self.model.named_parameters()}
            initialize_layerwise_reload(self.model)

        def update_weights(self, update_info: dict[str, Any]) -> None:
            # The inherited method also waits for an accelerator, which a CPU worker does not have.
            self.receive_weights(self.parse_update_info(update_info))

        def receive_weights(self, update_info: FileUpdateInfo) -> None:
            with safe_open(update_info.path, framework="pt", device="cpu") as file:
                pairs = ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118  # not a mapping
                self._loaded |= set(self.model.load_weights(pairs) or ())

        def finish_weight_update(self) -> None:
            finalize_layerwise_reload(self.model, self.model_config)
            retie_output_layer(self.model)
            missing = sorted(self._expected - self._loaded - {TIED})
            if missing:
                raise ValueError(f"the update contains no values for {', '.join(missing[:8])}")

        def shutdown(self) -> None:
            """Do nothing: files need no connection."""

    WeightTransferEngineFactory.register_engine(BACKEND, FileWeightTransferEngine)


def retie_output_layer(model: Any) -> None:
    """Repeat vLLM's preparation of an output layer that shares its weight with the input embeddings.

    The CPU kernels read a packed copy of the weight. vLLM makes that copy when it loads the output layer's own weight,
    which a checkpoint with tied embeddings does not contain, so an update would leave the old copy in use.
    """
    head = getattr(model, "lm_head", None)
    embeddings = getattr(getattr(model, "model", None), "embed_tokens", None)
    weight = getattr(head, "weight", None)
    if head is None or head is embeddings or weight is None or weight is not getattr(embeddings, "weight", None):
        return
    head.quant_method.process_weights_after_loading(head)


if "vllm" in sys.modules:  # imported by a server, not by a trainer
    register_backend()

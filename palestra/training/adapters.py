"""Add, load, save and merge LoRA adapters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palestra.engines.adapter_files import ADAPTER_NAME as NAME
from palestra.errors import BadValue
from palestra.optional import require
from palestra.training.distributed import full_tensor, has_shards


def add_lora(model: Any, *, rank: int, alpha: float, targets: str, seed: int) -> None:
    """Add LoRA to all linear layers, or to those named in `targets`: W x becomes W x + (alpha / rank) B A x.

    W is frozen. B is initialized to zero, so adding LoRA does not change the model's outputs.
    """
    peft = require("peft", extra="train")
    names = [name.strip() for name in targets.split(",") if name.strip()]
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha or 2.0 * rank, target_modules=names or "all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model.add_adapter(config)
        except ValueError as err:
            linear = sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
            raise BadValue(f"lora_targets={targets!r} matches no layer; the model has {', '.join(linear)}") from err


def load_lora(model: Any, folder: Path) -> None:
    """Load the adapter weights that `save_adapter` wrote to `folder`."""
    peft = require("peft", extra="train")
    from safetensors.torch import load_file

    outcome = peft.set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"), NAME)
    if outcome.unexpected_keys:
        raise BadValue(
            f"the adapter in {folder} has a layer that this model's adapter lacks ({outcome.unexpected_keys[0]}); "
            "use the lora_* options it was trained with"
        )


def adapter_state(model: Any) -> dict[str, Tensor]:
    """Return the full (unsharded) adapter weights. Every process must call this function."""
    return {name: full_tensor(p.detach()) for name, p in model.named_parameters() if is_lora(name)}


def is_lora(name: str) -> bool:
    return ".lora_" in name


@torch.no_grad()
def copy_adapter(source: nn.Module, target: nn.Module) -> None:
    """Copy the adapter weights of `source` to those of `target`. Every process must call this function."""
    parameters = dict(target.named_parameters())
    for name, p in source.named_parameters():
        if is_lora(name):
            parameters[name].copy_(full_tensor(p.detach()))


def save_merged(model: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Save `weights`, with adapters merged in and shards gathered, as a plain model in Hugging Face format."""
    if has_shards(model):
        _save_gathered(model, weights, folder)
        return
    # If this attribute is set, transformers saves only the adapter.
    adapted = getattr(model, "_hf_peft_config_loaded", False)
    model._hf_peft_config_loaded = False
    try:
        model.save_pretrained(folder, state_dict=dict(weights))
    finally:
        model._hf_peft_config_loaded = adapted


def _save_gathered(model: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Save gathered weights without `save_pretrained`, which reads the storage of the model's own, sharded weights."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = copy.deepcopy(model.config)
    config.architectures = config.architectures or [type(model).__name__]
    config.save_pretrained(folder)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def merged_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and value of every weight in the model, with adapters merged and shards gathered.

    Weights with a merged adapter are float32, because bfloat16 would round small updates away.
    """
    adapted = {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
    for name, p in model.named_parameters():
        if is_lora(name):
            continue
        tensor = full_tensor(p.detach())
        owner = name.removesuffix(".base_layer.weight")
        if owner != name:
            tensor = tensor.float() + _delta(adapted[owner])
        yield name.replace(".base_layer.", "."), tensor


def _delta(module: Any) -> Tensor:
    a, b = (full_tensor(part[NAME].weight.detach()).float() for part in (module.lora_A, module.lora_B))
    delta: Tensor = b @ a * module.scaling[NAME]
    return delta.T if getattr(module, "fan_in_fan_out", False) else delta

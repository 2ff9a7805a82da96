"""LoRA: a model with low-rank additions that are trained in place of its weights, and the same model without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palestra.errors import BadValue
from palestra.optional import require
from palestra.training.distributed import whole

NAME = "default"  # peft's name for an adapter that was given none


def add_lora(model: Any, *, rank: int, alpha: float, targets: str, seed: int) -> None:
    """W x becomes W x + (alpha / rank) B A x in every linear layer, or in those whose names `targets` lists.

    W is frozen. B starts at zero, so the model starts as it was.
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
            raise BadValue(f"lora_targets={targets!r} cannot be adapted; the model has {', '.join(linear)}") from err


def load_lora(model: Any, folder: Path) -> None:
    """The adapter's numbers from a folder that `save_lora` wrote."""
    peft = require("peft", extra="train")
    from safetensors.torch import load_file

    outcome = peft.set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"), NAME)
    if outcome.unexpected_keys:
        raise BadValue(f"{folder} holds an adapter of another shape ({outcome.unexpected_keys[0]}); set lora_* alike")


def state_of(model: Any) -> dict[str, Tensor]:
    """The adapter's numbers, put together; every process must call."""
    return {name: whole(p.detach()) for name, p in model.named_parameters() if is_lora(name)}


def save_lora(model: Any, state: dict[str, Tensor], folder: Path) -> None:
    """The adapter in peft's format."""
    peft = require("peft", extra="train")
    from safetensors.torch import save_file

    named = peft.get_peft_model_state_dict(model, state_dict=state, adapter_name=NAME)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: p.contiguous().cpu() for name, p in named.items()}, folder / "adapter_model.safetensors")
    model.peft_config[NAME].save_pretrained(folder)


def is_lora(name: str) -> bool:
    return ".lora_" in name


def merged(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight of the model under the name it has without LoRA, additions added, parts put together."""
    adapted = {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
    for name, p in model.named_parameters():
        if is_lora(name):
            continue
        tensor = whole(p.detach())
        owner = name.removesuffix(".base_layer.weight")
        if owner != name:
            tensor = tensor + _addition(adapted[owner]).to(tensor.dtype)
        yield name.replace(".base_layer.", "."), tensor


def _addition(module: Any) -> Tensor:
    a, b = (whole(part[NAME].weight.detach()).float() for part in (module.lora_A, module.lora_B))
    added: Tensor = b @ a * module.scaling[NAME]
    return added.T if getattr(module, "fan_in_fan_out", False) else added

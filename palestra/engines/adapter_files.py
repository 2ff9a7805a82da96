"""Write LoRA adapters in peft's format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palestra.optional import require

ADAPTER_NAME = "default"  # peft's default adapter name


def save_adapter(model: Any, state: Mapping[str, Any], folder: Path) -> None:
    """Save the adapter weights `state` of a model to `folder`."""
    peft = require("peft", extra="train")
    from safetensors.torch import save_file

    named = peft.get_peft_model_state_dict(model, state_dict=dict(state), adapter_name=ADAPTER_NAME)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: p.contiguous().cpu() for name, p in named.items()}, folder / "adapter_model.safetensors")
    model.peft_config[ADAPTER_NAME].save_pretrained(folder)

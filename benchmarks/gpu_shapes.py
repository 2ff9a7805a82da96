"""Model shapes with random weights for the GPU benchmarks, and the peak speed of an H200 for comparison."""

from __future__ import annotations

from typing import Any

PEAK_FLOPS = 790e12  # bf16 matrix product measured on an H200
BANDWIDTH = 4.3e12  # bytes per second, measured on an H200


def _qwen(hidden: int, intermediate: int, layers: int, heads: int) -> dict[str, int]:
    return {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
            "max_position_embeddings": 40_960}  # fmt: skip


# Settings of Qwen3Config. The shapes from 0.6B on are those of Qwen3, 135M is that of SmolLM2.
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 128, "max_position_embeddings": 40_960},
    "1M": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4,
           "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1024, "max_position_embeddings": 8192},
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
             "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49_152, "max_position_embeddings": 8192},
    "0.6B": _qwen(1024, 3072, layers=28, heads=16),
    "1.7B": _qwen(2048, 6144, layers=28, heads=16),
    "4B": _qwen(2560, 9728, layers=36, heads=32),
    "8B": _qwen(4096, 12288, layers=36, heads=32),
}  # fmt: skip


def make_model(shape: str, device: str, dtype: str, **changes: int | None) -> Any:
    """Return a Qwen3 model with random weights; `changes` replace settings of its shape."""
    import torch
    import transformers

    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "tie_word_embeddings": shape != "8B", "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
        **SHAPES[shape], **changes,
    }  # fmt: skip
    auto: Any = transformers.AutoModelForCausalLM  # untyped
    with torch.device(device):
        return auto.from_config(transformers.Qwen3Config(**settings), dtype=getattr(torch, dtype)).eval()

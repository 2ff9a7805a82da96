"""Shape of a language model, read from its configuration without torch: parameter counts and size of the KV cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from palestra.engines.model_folders import model_folder
from palestra.errors import BadValue, MissingExtra
from palestra.optional import require

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # supported values of model_type

# Common configurations, included to avoid downloads: hidden size, MLP size, layers, heads, and whether input and output
# embeddings are tied. All have 8 key heads of size 128 and a vocabulary of 151,936 tokens.
_QWEN3 = {
    "Qwen/Qwen3-0.6B": (1024, 3072, 28, 16, True),
    "Qwen/Qwen3-1.7B": (2048, 6144, 28, 16, True),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32, True),
    "Qwen/Qwen3-8B": (4096, 12288, 36, 32, False),
    "Qwen/Qwen3-14B": (5120, 17408, 40, 40, False),
    "Qwen/Qwen3-32B": (5120, 25600, 64, 64, False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes that determine how much memory a decoder-only model needs."""

    name: str
    hidden: int
    inner: int  # width of the MLP
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    vocabulary: int
    tied: bool  # whether the output layer shares its weight with the input embeddings
    context: int  # maximum number of tokens
    attention_biases: int = 0  # number of bias parameters per layer
    head_norms: bool = False  # whether queries and keys are normalized, as in Qwen3

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the shape of a model: a Hugging Face id, a model or run folder, or a config.json."""
        return cls.from_config(name, read_config(name))

    @classmethod
    def from_config(cls, name: str, config: Mapping[str, Any]) -> Self:
        """Return the shape that a transformers configuration describes."""
        kind = config.get("model_type")
        if kind not in FAMILIES:
            raise BadValue(f"{name} has the model type {kind!r}; memory is computed for {', '.join(FAMILIES)}")
        try:
            hidden, heads = config["hidden_size"], config["num_attention_heads"]
            dim = config.get("head_dim") or hidden // heads
            key_heads = config.get("num_key_value_heads") or heads
            projections = (heads + 2 * key_heads) * dim
            bias = config.get("attention_bias", False)
            return cls(
                name=name,
                hidden=hidden,
                inner=config["intermediate_size"],
                layers=config["num_hidden_layers"],
                heads=heads,
                key_heads=key_heads,
                head_dim=dim,
                vocabulary=config["vocab_size"],
                tied=bool(config.get("tie_word_embeddings", False)),
                context=config.get("max_position_embeddings", 4096),
                # Qwen2 has biases for queries, keys and values; attention_bias adds them for the output as well.
                attention_biases=projections if kind == "qwen2" else (projections + hidden) * bool(bias),
                head_norms=kind == "qwen3",
            )
        except KeyError as err:
            raise BadValue(f"the configuration of {name} has no value for {err.args[0]}") from err

    @property
    def layer_parameters(self) -> int:
        """Number of parameters in one transformer block."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.key_heads) + self.attention_biases
        norms = 2 * self.hidden + 2 * self.head_dim * self.head_norms
        return attention + 3 * self.hidden * self.inner + norms

    @property
    def outer_parameters(self) -> int:
        """Number of parameters outside the blocks: embeddings, output layer and last norm."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.outer_parameters

    def lora_parameters(self, rank: int) -> int:
        """Number of parameters in LoRA adapters for all linear layers in the blocks."""
        queries, keys = self.heads * self.head_dim, self.key_heads * self.head_dim
        sizes = 2 * (self.hidden + queries) + 2 * (self.hidden + keys) + 3 * (self.hidden + self.inner)
        return self.layers * rank * sizes

    @property
    def cache_per_token(self) -> int:
        """Size of the KV cache per token in bytes, in bfloat16."""
        return 2 * self.layers * self.key_heads * self.head_dim * 2


def read_config(name: str) -> Mapping[str, Any]:
    """Return a model's configuration from a known shape, a local file, or the Hugging Face Hub (cached)."""
    folder = Path(model_folder(name))
    path = folder / "config.json" if folder.is_dir() else folder
    if not path.is_file():
        if name in _QWEN3:
            return _known(name)
        path = _download(name)
    try:
        config: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise BadValue(f"{path} is not a model configuration: {err}") from err
    return config


def _known(name: str) -> dict[str, Any]:
    hidden, inner, layers, heads, tied = _QWEN3[name]
    sizes = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    fixed = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960}
    return {"model_type": "qwen3", "num_attention_heads": heads, "tie_word_embeddings": tied, **sizes, **fixed}


def _download(name: str) -> Path:
    known = f"Known without a download: {', '.join(_QWEN3)}"
    try:
        hub = require("huggingface_hub", extra="train")
    except MissingExtra as err:
        raise MissingExtra(f"{err}. {known}") from err
    try:
        return Path(hub.hf_hub_download(name, "config.json"))
    except (OSError, ValueError) as err:
        reason = str(err).strip().partition("\n")[0]
        raise BadValue(
            f"no configuration for {name!r}: pass a model id, a folder or a config.json ({reason}). {known}"
        ) from err

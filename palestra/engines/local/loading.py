"""Load a model and its tokenizer, and read the properties that the engine needs from the model's configuration."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import transformers

from palestra.engines.base import Weights
from palestra.engines.local.lora import base_linear
from palestra.errors import BadValue

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")
# Raised by transformers for invalid folders.
LOADING_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError)


def load(
    model: Any, *, tokenizer: Any, device: str, dtype: str | None, options: Mapping[str, Any]
) -> tuple[Any, Any, torch.device]:
    """Return (model on its device, tokenizer, device). The tokenizer may be None if `model` is already loaded."""
    if isinstance(model, torch.nn.Module):
        target = next(model.parameters()).device
        if device != "auto" and _device(device) != target:
            model.to(_device(device))
            target = next(model.parameters()).device  # with the number of the GPU
        if dtype is not None:
            model.to(_dtype(dtype))
    else:
        target = _device(device)
        name = _name(model)
        torch_dtype = _dtype(dtype or ("float32" if target.type == "cpu" else "bfloat16"))
        tokenizer = tokenizer if tokenizer is not None else name
        model = _from_pretrained(transformers.AutoModelForCausalLM, name, {"dtype": torch_dtype, **options})
        if "device_map" not in options:
            model.to(target)
        target = model.device
        model.eval()
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = _tokenizer(os.fspath(tokenizer))
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise BadValue(f"{type(model).__name__} is an encoder-decoder; LocalEngine runs decoder-only models")
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise BadValue(f"{type(model).__name__} does not predict tokens; pass a causal language model")
    if target.type == "cuda":
        # cuDNN attention builds a new plan for every shape, which takes longer than most calls; shapes rarely repeat.
        torch.backends.cuda.enable_cudnn_sdp(False)
    elif target.type == "cpu" and model.dtype != torch.float32:
        choose_low_precision_kernels(model.dtype)
    return model, tokenizer, target


def choose_low_precision_kernels(dtype: torch.dtype) -> None:
    """Make torch select its CPU kernels for `dtype` now, without a warning if the CPU does not support `dtype`.

    On such CPUs the first large matmul fails inside oneDNN; torch then warns and uses BLAS from then on, even for
    float32. If this happens before the first forward pass, the same kernels compute all results. The fused attention
    raises an error if it was compiled for fewer CPU instructions than oneDNN finds; torch's plain attention replaces
    it in this process.
    """
    warnings.filterwarnings("ignore", message="mkldnn_matmul", category=UserWarning)
    probe = torch.zeros(64, 64, dtype=dtype)
    F.linear(probe, probe, probe[0])
    try:
        F.scaled_dot_product_attention(probe[None, None], probe[None, None], probe[None, None])
    except RuntimeError:
        torch.backends.cuda.enable_flash_sdp(False)  # this setting also applies to the CPU


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end a reply, from the model's generation settings, its configuration and its tokenizer."""
    stops: set[int] = set()
    for source in (getattr(model, "generation_config", None), _text_config(model), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        stops.update(ids if isinstance(ids, Iterable) else () if ids is None else (ids,))
    return frozenset(stops)


def transformer_layers(model: Any) -> list[torch.nn.Module]:
    """Return a model's transformer blocks."""
    return [m for m in model.modules() if any(k.__name__ == "GradientCheckpointingLayer" for k in type(m).__mro__)]


def context_length(model: Any, requested: int | None) -> int | None:
    """Return the model's context length in tokens, or `requested` if that is smaller; None if unknown."""
    config = _text_config(model)
    limit: int | None = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if _rope_type(config) == "longrope":
        # Beyond this length the rotation of every key changes, so cached keys would be wrong.
        short = _rope(config).get("original_max_position_embeddings")
        limit = short or getattr(config, "original_max_position_embeddings", None) or limit
    if requested is None:
        return limit
    if requested < 2:
        raise BadValue(f"max_context must be at least 2, got {requested}")
    if limit is not None and requested > limit:
        raise BadValue(f"max_context must be at most {limit} for {type(model).__name__}, got {requested}")
    return requested


def rope_type(model: Any) -> str:
    return _rope_type(_text_config(model))


def rope_types(model: Any) -> set[str]:
    """Return the kinds of rotary embeddings in a model, whose layer types may have different ones (Gemma 3)."""
    settings = _rope(_text_config(model))
    nested: list[Mapping[str, Any]] = [value for value in settings.values() if isinstance(value, dict)]
    return {str(value.get("rope_type", "default")) for value in nested or [settings]}


def layer_windows(model: Any) -> dict[str, int | None] | None:
    """Map each layer type to its attention window (None: unlimited). Return None if a layer is not plain attention."""
    config = _text_config(model)
    window = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None:
        if getattr(config, "attention_chunk_size", None) is not None:
            return None
        layer_types = ["full_attention" if window is None else "sliding_attention"]
    windows = {"full_attention": None, "sliding_attention": window}
    return {kind: windows[kind] for kind in layer_types} if set(layer_types) <= set(windows) else None


def vocabulary_size(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])


def private_copy(tokenizer: Any) -> Any:
    """Copy a tokenizer for use in another thread, because fast tokenizers do not allow concurrent use."""
    return copy.deepcopy(tokenizer)


@torch.no_grad()
def copy_weights(model: Any, weights: Weights) -> None:
    """Copy named tensors into the model's parameters and buffers, converting device and dtype."""
    own = model.state_dict()
    for name, tensor in weights.items() if isinstance(weights, Mapping) else weights:
        if name not in own:
            close = get_close_matches(name, own, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise BadValue(f"{type(model).__name__} has no tensor named {name!r}{hint}")
        if own[name].shape != tensor.shape:
            raise BadValue(f"tensor {name!r} must have shape {tuple(own[name].shape)}, got {tuple(tensor.shape)}")
        own[name].copy_(tensor)


def _text_config(model: Any) -> Any:
    return model.config.get_text_config(decoder=True)


def _rope_type(config: Any) -> str:
    return str(_rope(config).get("rope_type", "default"))


def _rope(config: Any) -> Mapping[str, Any]:
    """Return the rotary-embedding settings; transformers 5 renamed the field."""
    return getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}


def _name(model: Any) -> str:
    """Return the folder or hub id to load the model from."""
    if not isinstance(model, (str, os.PathLike)):
        raise BadValue(f"model must be a folder, a hub id or a loaded model, got {type(model).__name__}")
    name = os.fspath(model)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BadValue(f"{name} contains no model: config.json is missing")
        return str(folder)
    is_path = isinstance(model, os.PathLike) or name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name
    if is_path or not name or folder.is_file():
        raise BadValue(f"there is no folder {name!r}. `palestra init-model` creates a model that needs no download.")
    return name


def _from_pretrained(auto_class: Any, name: str, options: Mapping[str, Any]) -> Any:
    try:
        return auto_class.from_pretrained(name, **options)
    except LOADING_ERRORS as err:
        part = "tokenizer" if auto_class is transformers.AutoTokenizer else "model"
        if Path(name).is_dir():
            raise BadValue(f"transformers cannot read a {part} from {name}: {_first_line(err)}") from err
        raise BadValue(
            f"the {part} of {name!r} could not be fetched from the hub ({_first_line(err)}). Without network access, "
            "pass the path to a folder that contains it; `palestra init-model` creates a model that needs no download."
        ) from err


def _tokenizer(name: str) -> Any:
    folder = Path(name).expanduser()
    if folder.is_dir() and not any((folder / file).is_file() for file in TOKENIZER_FILES):
        # transformers would create an empty tokenizer
        raise BadValue(f"{name} contains no tokenizer ({', '.join(TOKENIZER_FILES[:2])} ...); pass one with tokenizer=")
    return _from_pretrained(transformers.AutoTokenizer, str(folder) if folder.is_dir() else name, {})


def _first_line(err: Exception) -> str:
    return str(err).strip().partition("\n")[0] or type(err).__name__


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as err:
        raise BadValue(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {name!r}") from err
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadValue(f"device is {name!r}, but torch finds no GPU; use 'auto' or 'cpu'")
    return device


def _dtype(name: str | torch.dtype) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BadValue(f"dtype must be 'float32', 'bfloat16' or 'float16', got {name!r}")
    return dtype


def unreadable_reason(model: Any, linears: Iterable[Any]) -> str | None:
    """Return why a runner that reads the weights itself cannot use a model with these linear layers; None if it can."""
    plain = isinstance(model.model.embed_tokens, torch.nn.Embedding)
    if not plain or any(base_linear(linear) is None for linear in linears):
        return "its layers are wrapped (quantization, or adapters other than LoRA)"
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "_hf_hook"):
            return "it has forward hooks"
    embedding = model.model.embed_tokens.weight
    if any(p.device != embedding.device or p.dtype != embedding.dtype for p in model.parameters()):
        return "its parameters are on several devices or have several dtypes"
    return None

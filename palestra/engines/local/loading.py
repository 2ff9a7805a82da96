"""Turn a folder, a hub id or a loaded model into a model that is ready to run, and read what it says about itself."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import transformers

from palestra.engines.base import Weights
from palestra.errors import BadValue

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")
BROKEN_FILES = (OSError, ValueError, KeyError, RuntimeError, ImportError)  # what transformers raises for bad folders


def load(
    model: Any, *, tokenizer: Any, device: str, dtype: str | None, options: Mapping[str, Any]
) -> tuple[Any, Any, torch.device]:
    """The model on its device, its tokenizer (None for a loaded model that came without), the device."""
    if isinstance(model, torch.nn.Module):
        place = next(model.parameters()).device
        if device != "auto" and _device(device) != place:
            place = _device(device)
            model.to(place)
        if dtype is not None:
            model.to(_dtype(dtype))
    else:
        place = _device(device)
        name = _name(model)
        wanted = _dtype(dtype or ("float32" if place.type == "cpu" else "bfloat16"))
        tokenizer = tokenizer if tokenizer is not None else name
        model = _read(transformers.AutoModelForCausalLM, name, {"dtype": wanted, **options})
        if "device_map" not in options:
            model.to(place)
        place = model.device
        model.eval()
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = _tokenizer(os.fspath(tokenizer))
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise BadValue(f"{type(model).__name__} reads with an encoder; the hf engine runs decoder-only models")
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise BadValue(f"{type(model).__name__} predicts no tokens; give a model for causal language modelling")
    if place.type == "cuda":
        # cuDNN's attention plans anew for every shape, which takes longer than most calls; here hardly two are alike.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return model, tokenizer, place


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The ids that end a reply, by the model's generation settings, its configuration and its tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), _text_config(model), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, Iterable) else () if ids is None else (ids,))
    return frozenset(found)


def context_of(model: Any, asked: int | None) -> int | None:
    """How many tokens the model can read, or fewer where asked; None: it does not say."""
    config = _text_config(model)
    known: int | None = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if _rope_type(config) == "longrope":
        # Past this length every key changes its rotation, so what is cached would be wrong.
        short = _rope(config).get("original_max_position_embeddings")
        known = short or getattr(config, "original_max_position_embeddings", None) or known
    if asked is None:
        return known
    if asked < 2:
        raise BadValue(f"max_context is at least 2, got {asked}")
    if known is not None and asked > known:
        raise BadValue(f"max_context is {asked}, but {type(model).__name__} reads {known} tokens at most")
    return asked


def rope_type(model: Any) -> str:
    return _rope_type(_text_config(model))


def layer_windows(model: Any) -> dict[str, int | None] | None:
    """How far back each kind of layer looks (None: to the start); None: there is a kind that is not plain attention."""
    config = _text_config(model)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        if getattr(config, "attention_chunk_size", None) is not None:
            return None
        kinds = ["full_attention" if window is None else "sliding_attention"]
    known = {"full_attention": None, "sliding_attention": window}
    return {kind: known[kind] for kind in kinds} if set(kinds) <= set(known) else None


def vocabulary_of(model: Any) -> int:
    """How many ids the model can read."""
    return int(model.get_input_embeddings().num_embeddings)


def private_copy(tokenizer: Any) -> Any:
    """A tokenizer for another thread: the fast ones refuse to be used by two at once."""
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
    """How positions are rotated; the name of it changed with transformers 5."""
    return getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}


def _name(model: Any) -> str:
    """A folder that holds a model, or a hub id."""
    if not isinstance(model, (str, os.PathLike)):
        raise BadValue(f"a model is a folder, a hub id or a loaded model, got {type(model).__name__}")
    name = os.fspath(model)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BadValue(f"{name} holds no model: config.json is missing")
        return str(folder)
    is_path = isinstance(model, os.PathLike) or name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name
    if is_path or not name or folder.is_file():
        raise BadValue(f"there is no folder {name!r}. `palestra init-model` makes a model that needs no download.")
    return name


def _read(kind: Any, name: str, options: Mapping[str, Any]) -> Any:
    try:
        return kind.from_pretrained(name, **options)
    except BROKEN_FILES as err:
        part = "tokenizer" if kind is transformers.AutoTokenizer else "model"
        if Path(name).is_dir():
            raise BadValue(f"transformers cannot read a {part} from {name}: {_first_line(err)}") from err
        raise BadValue(
            f"the {part} of {name!r} could not be fetched from the hub ({_first_line(err)}). Without network access, "
            "give the path of a folder that holds it; `palestra init-model` makes a model that needs no download."
        ) from err


def _tokenizer(name: str) -> Any:
    folder = Path(name).expanduser()
    if folder.is_dir() and not any((folder / file).is_file() for file in TOKENIZER_FILES):
        # transformers would make an empty one up
        raise BadValue(f"{name} holds no tokenizer ({', '.join(TOKENIZER_FILES[:2])} ...); give one with tokenizer=")
    return _read(transformers.AutoTokenizer, str(folder) if folder.is_dir() else name, {})


def _first_line(err: Exception) -> str:
    return str(err).strip().partition("\n")[0] or type(err).__name__


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
    except RuntimeError as err:
        raise BadValue(f"device is 'auto', 'cpu', 'cuda' or 'cuda:N', got {name!r}") from err
    if place.type == "cuda" and not torch.cuda.is_available():
        raise BadValue(f"device is {name!r}, but torch sees no GPU; give 'auto' or 'cpu'")
    return place


def _dtype(name: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadValue(f"dtype is 'float32', 'bfloat16' or 'float16', got {name!r}")
    return found

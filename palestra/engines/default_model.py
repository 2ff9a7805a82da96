"""Create the default model: a small, untrained Qwen3 model with its own tokenizer, initialized from a seed.

`palestra train` trains it without a download. All sizes share one tokenizer (byte-level BPE, so any text round-trips;
numbers up to 99 and `\\boxed{` are single tokens) and one ChatML template, and are saved in Hugging Face format.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from palestra.errors import BadValue, StoreFailed
from palestra.folders import MANIFEST, check_unused, replace_folder, write_manifest
from palestra.optional import require

CONTEXT = 8192

CHAT_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}\
{%- if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\\n\\n' }}{% endif %}\
{{- 'You may call these functions, each call as <tool_call>{"name": ..., "arguments": {...}}</tool_call>:\\n' }}\
{%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}\
{%- for message in messages %}\
{%- if not (tools and loop.first and message['role'] == 'system') %}\
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}\
{%- for call in message['tool_calls'] or [] %}{%- set function = call.function or call %}\
{{- '<tool_call>{"name": ' + function.name | tojson + ', "arguments": ' }}\
{{- function.arguments if function.arguments is string else function.arguments | tojson }}\
{{- '}</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}\
{%- endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


class Shape(NamedTuple):
    hidden: int
    layers: int
    heads: int
    intermediate: int


SIZES = {
    "0.1M": Shape(48, 2, 3, 128),
    "0.2M": Shape(64, 4, 4, 96),  # narrower than 0.3M, but with four layers
    "0.3M": Shape(96, 2, 6, 256),
    "1M": Shape(128, 4, 4, 384),
    "3M": Shape(192, 6, 6, 576),
    "10M": Shape(320, 8, 10, 896),
    "30M": Shape(512, 9, 16, 1408),
    "100M": Shape(768, 14, 24, 2048),
}


def default_tokenizer() -> Any:
    """Return the tokenizer shared by all sizes."""
    transformers = require("transformers", extra="hf")
    tokenizers = require("tokenizers", extra="hf")
    text = files("palestra.engines").joinpath("data/tokenizer.json").read_text(encoding="utf-8")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(text),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def default_model(size: str = "1M", *, seed: int = 0) -> tuple[Any, Any]:
    """Return a model of the given size and its tokenizer; the same seed always yields the same weights."""
    if size not in SIZES:
        raise BadValue(f"size must be one of {', '.join(SIZES)}; got {size!r}")
    torch = require("torch", extra="hf")
    transformers = require("transformers", extra="hf")
    tokenizer = default_tokenizer()
    shape = SIZES[size]
    config = transformers.Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):  # the constructor uses torch's global generator
        model = transformers.Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.dim() == 1:
                parameter.fill_(1.0)  # normalization weights
            else:
                # This also applies to embeddings: with the usual standard deviation of 0.02, the output of the first
                # layer would be much larger than the token embedding.
                spread = parameter.shape[1] ** -0.5
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    spread /= (2 * shape.layers) ** 0.5  # limits the growth of the residual stream over the layers
                parameter.normal_(0.0, spread, generator=generator)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.eval(), tokenizer


def save(model: Any, tokenizer: Any, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a checkpoint in Hugging Face format atomically; `overwrite` replaces one that this function wrote."""
    folder = Path(folder)
    ours = overwrite and (folder / MANIFEST).is_file()
    if overwrite or not (folder / MANIFEST).is_file():
        check_unused(folder, ours=ours, what="model written by Palestra")
    else:
        raise BadValue(f"{folder} already exists; choose another folder, or pass overwrite=True (--overwrite)")
    part = folder.with_name(f".{folder.name}.part")
    try:
        part.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        json.loads((part / "config.json").read_text())
        write_manifest(part)
        replace_folder(part, folder)
    except OSError as err:
        raise StoreFailed(f"cannot write the model to {folder}: {err}") from err
    return folder


def count_parameters(model: Any) -> int:
    """Return the number of parameters, counting tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())

"""Tiny models and tokenizers for tests, and reference log-probabilities from a plain forward pass."""

from __future__ import annotations

import random
from typing import Any

import tokenizers
import torch
import transformers

from palestra.engines.base import Completion

torch.set_num_threads(1)  # synchronizing threads takes longer than running these models

VOCABULARY = 97
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    # The distributions are far from uniform, so that a cache error changes the log-probabilities.
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def make(architecture: str, seed: int = 0, **changes: Any) -> Any:
    """Create a random float32 model, for example make("Qwen3")."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{architecture}Config")(**{**SHAPE, **changes})
    attention = {"attn_implementation": config._attn_implementation} if "attn_implementation" in changes else {}
    auto: Any = transformers.AutoModelForCausalLM  # untyped
    model = auto.from_config(config, **attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases, which are initialized to ones and zeros
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def qwen3(seed: int = 0, **changes: Any) -> Any:
    return make("Qwen3", seed, head_dim=8, **changes)


def words(count: int = VOCABULARY) -> Any:
    """Create a tokenizer with the tokens w0, w1, ..., separated by spaces."""
    model = tokenizers.models.WordLevel({f"w{at}": at for at in range(count)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return _wrapped(tokenizer)


def bytewise() -> Any:
    """Create a tokenizer with one token per byte, so that a character may be several tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return _wrapped(tokenizer)


def _wrapped(tokenizer: tokenizers.Tokenizer) -> Any:
    fast: Any = transformers.PreTrainedTokenizerFast  # untyped
    return fast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def text(rng: random.Random, length: int, vocabulary: int = VOCABULARY) -> list[int]:
    return [rng.randrange(vocabulary) for _ in range(length)]


@torch.no_grad()
def error(model: Any, *replies: Completion) -> float:
    """Return the maximum absolute difference between the replies' log-probabilities and the model's.

    The model computes all replies in one forward pass without a cache. Padding follows each sequence, where causal
    attention ignores it.
    """
    sequences = [torch.tensor(reply.prompt_ids + reply.ids) for reply in replies]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True).to(model.device)
    logprobs = model(input_ids=ids, use_cache=False).logits[:, :-1].float().log_softmax(-1)
    expected = logprobs.gather(2, ids[:, 1:, None])[:, :, 0].tolist()
    errors = []
    for reply, row in zip(replies, expected, strict=True):
        assert len(reply.ids) == len(reply.logprobs) > 0
        start = len(reply.prompt_ids) - 1
        errors += [abs(a - b) for a, b in zip(reply.logprobs, row[start : start + len(reply.ids)], strict=True)]
    return torch.tensor(errors).max().item()  # NaN if a log-probability is NaN


class Twice(torch.nn.Module):
    """Layer that doubles another layer's output."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return 2 * self.inner(x)

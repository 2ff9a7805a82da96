"""Create a tiny model in Hugging Face format: random Qwen3 weights and a byte-level tokenizer with a few merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from palestra.engines import ByteTokenizer

TEXT = ["the guess was too low, try a higher number", "the answer is 42", "<tool_call>look</tool_call>", "no more"]


def make_tokenizer() -> Any:
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    special_tokens = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "[CALL]"]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special_tokens])
    fast: Any = PreTrainedTokenizerFast  # untyped
    return fast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=ByteTokenizer().chat_template,
    )


def make_model(folder: Path, *, context: int) -> Path:
    """Write a model whose weights are large enough that tokens differ in probability."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    qwen: Any = Qwen3ForCausalLM  # untyped
    model = qwen(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=context,
            tie_word_embeddings=False,
            initializer_range=0.15,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    # The server must not apply these defaults, because they change the requested distribution.
    model.generation_config.temperature = 0.3
    model.generation_config.top_k = 2
    model.generation_config.repetition_penalty = 1.5
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

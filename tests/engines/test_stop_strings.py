"""Test decoding with the fastest function that a tokenizer allows."""

from __future__ import annotations

import random
from typing import Any

from palestra.engines import ByteTokenizer
from palestra.engines.default_model import default_tokenizer
from palestra.engines.stop_strings import decoder, text_of


def test_the_fast_decoder_returns_the_text_of_the_tokenizer() -> None:
    tokenizer = default_tokenizer()
    decode = decoder(tokenizer)
    rng = random.Random(0)
    for _ in range(200):
        ids = [rng.randrange(1100) for _ in range(rng.randrange(12))]  # includes unknown and special ids
        assert decode(ids) == text_of(tokenizer, ids)


def test_the_decode_method_of_other_tokenizers_is_called() -> None:
    tokenizer: Any = default_tokenizer()
    tokenizer.decode = lambda ids, **_: f"{len(ids)} ids"
    assert decoder(tokenizer)([5, 6]) == "2 ids"
    assert decoder(ByteTokenizer())([72, 105]) == "Hi"

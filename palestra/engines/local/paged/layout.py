"""Constants and shapes that the host code, the Triton kernels and their torch reference share."""

from __future__ import annotations

from typing import NamedTuple

PAGE = 16  # tokens per page

# Columns of the state table, which has one row of 32-bit numbers per running sequence. The last row belongs to padding.
LENGTH = 0  # tokens whose keys and values are stored; the next input token has this position
LAST_TOKEN = 1  # the token sampled last, which is the next input
SAMPLED = 2  # tokens sampled so far; determines the random numbers together with the seed
SEED_LOW = 3
SEED_HIGH = 4
TEMPERATURE = 5  # float32; 0 means greedy decoding
TOP_K = 6  # 0 disables the filter
TOP_P = 7  # float32; 1 disables the filter
MIN_P = 8  # float32; 0 disables the filter
LOGPROB_TEMPERATURE = 9  # float32; temperature at which log-probabilities are returned
STATE_WIDTH = 16


class Heads(NamedTuple):
    """Attention shape of a model."""

    query: int  # number of query heads
    kv: int  # number of key/value heads
    dim: int
    scale: float

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.query // self.kv

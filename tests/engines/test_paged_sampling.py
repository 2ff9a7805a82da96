"""Test the paged path's sampling with its torch version, which has the same results as the Triton kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from palestra.engines.local.paged import layout, reference

VOCABULARY = 12
LOGITS = torch.linspace(-2.0, 2.0, VOCABULARY).roll(5)


def make_state(rows: int, **floats: float) -> torch.Tensor:
    """Return the state of `rows` slots with different seeds, plus one for padding."""
    generator = torch.Generator().manual_seed(1)
    state = torch.zeros((rows + 1, layout.STATE_WIDTH), dtype=torch.int32)
    state[:, layout.SEED_LOW] = torch.randint(-(2**31), 2**31, (rows + 1,), generator=generator).int()
    state[:, layout.TOP_K] = int(floats.pop("top_k", 0))
    settings = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "logprob_temperature": 1.0, **floats}
    for name, value in settings.items():
        state[:, getattr(layout, name.upper())] = torch.tensor(value).view(torch.int32)
    return state


def draw(state: torch.Tensor, rows: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, logprobs = torch.zeros(len(rows), dtype=torch.int32), torch.zeros(len(rows))
    reference.sample(logits, rows, state, tokens, logprobs)
    return tokens, logprobs


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 12),
        ({"temperature": 0.5}, 12),
        ({"top_k": 3}, 3),
        ({"top_p": 0.6}, 3),
        ({"top_k": 5, "top_p": 0.6}, 2),
        ({"min_p": 0.3}, 4),
        ({"temperature": 2.0, "min_p": 0.3}, 7),
        ({"temperature": 0.0}, 1),
    ],
)
def test_frequencies_equal_the_filtered_distribution(settings: dict[str, Any], kept: int) -> None:
    rows = 8000
    tokens, logprobs = draw(make_state(rows, **settings), torch.arange(rows).int(), LOGITS.expand(rows, -1))
    temperature = settings.get("temperature", 1.0) or 1.0
    expected = (LOGITS / temperature).softmax(-1)
    expected = expected.where(LOGITS.sort(descending=True).values[kept - 1] <= LOGITS, 0.0)
    expected /= expected.sum()
    frequencies = torch.bincount(tokens, minlength=VOCABULARY) / rows
    assert (frequencies - expected).abs().sum() < 0.06
    torch.testing.assert_close(logprobs, LOGITS.log_softmax(-1)[tokens.long()])


def test_tokens_depend_on_seed_and_position_but_not_on_the_batch() -> None:
    state = make_state(64)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(2)).int()
    together, _ = draw(state.clone(), order, LOGITS.expand(64, -1))
    alone = [int(draw(state.clone(), order[at : at + 1], LOGITS[None])[0]) for at in range(64)]
    assert together.tolist() == alone
    again, _ = draw(state, order, LOGITS.expand(64, -1))  # advances the state
    following, _ = draw(state, order, LOGITS.expand(64, -1))
    assert again.tolist() == alone
    assert following.tolist() != alone
    assert (state[:-1, layout.SAMPLED] == 2).all()
    assert (state[order.long(), layout.LAST_TOKEN] == following).all()


def test_padding_keeps_its_state_and_broken_rows_are_marked() -> None:
    state = make_state(2, logprob_temperature=0.5)
    before = state.clone()
    logits = LOGITS.repeat(3, 1)
    logits[1, 4] = torch.nan
    tokens, logprobs = draw(state, torch.tensor([0, 1, 2]).int(), logits)
    assert logprobs.isnan().tolist() == [False, True, False]
    assert (state[2] == before[2]).all()
    torch.testing.assert_close(logprobs[0], (LOGITS / 0.5).log_softmax(-1)[int(tokens[0])])

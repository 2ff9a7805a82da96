from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.tasks.order import position_of, row_at


@given(st.integers(1, 300), st.integers(0, 2**50), st.integers(0, 2**60))
def test_an_epoch_visits_every_row_once(rows: int, seed: int, epoch: int) -> None:
    visited = [row_at(position, rows, seed=seed, epoch=epoch) for position in range(rows)]
    assert sorted(visited) == list(range(rows))


@given(st.integers(1, 2**40), st.data())
def test_position_of_is_the_inverse_of_row_at(rows: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, rows - 1))
    row = row_at(position, rows, seed=3, epoch=9)
    assert 0 <= row < rows
    assert position_of(row, rows, seed=3, epoch=9) == position


def test_epochs_and_seeds_have_different_orders() -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(row_at(position, 50, seed=seed, epoch=epoch) for position in range(50))

    assert len({order(0, 0), order(0, 1), order(1, 0), order(1, 1), tuple(range(50))}) == 5


def test_orders_are_fair() -> None:
    """Check over many epochs that the first row and pairs of consecutive rows are uniformly distributed."""
    first = Counter(row_at(0, 7, seed=1, epoch=epoch) for epoch in range(3500))
    assert len(first) == 7
    assert max(first.values()) < 620  # the expected count is 500, and the bound is about 6 standard deviations away
    assert min(first.values()) > 380
    pairs = Counter((row_at(2, 4, seed=1, epoch=e), row_at(3, 4, seed=1, epoch=e)) for e in range(2400))
    assert len(pairs) == 12
    assert max(pairs.values()) < 290  # the expected count is 200
    assert min(pairs.values()) > 120

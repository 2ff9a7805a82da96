"""Between turns and tokens: a number a turn -> a number a token, and back."""

from __future__ import annotations

from collections.abc import Sequence

from palestra.errors import BadValue


def to_tokens(per_turn: Sequence[float], turn_index: Sequence[int]) -> list[float]:
    """Each token gets its turn's number; tokens of no turn (index below 0: the policy did not choose them) get 0."""
    _check(turn_index, len(per_turn))
    return [per_turn[turn] if turn >= 0 else 0.0 for turn in turn_index]


def to_turns(per_token: Sequence[float], turn_index: Sequence[int], turns: int) -> list[float]:
    """The sum over each turn's tokens: how a KL per token becomes one per turn. Whatever no turn owns is not read."""
    _check(turn_index, turns)
    found = [0.0] * turns
    for number, turn in zip(per_token, turn_index, strict=True):
        if turn >= 0:
            found[turn] += number
    return found


def _check(turn_index: Sequence[int], turns: int) -> None:
    if max(turn_index, default=-1) >= turns:
        raise BadValue(f"turn_index names turn {max(turn_index)} of an episode with {turns} turns (they count from 0)")

"""What was known of a step's samples before the first update: the critic's word, the reference's, the policy's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from palestra.algorithms import Episode, to_turns
from palestra.algorithms.base import Level
from palestra.algorithms.losses import kl_reward
from palestra.rollout.types import Trajectory
from palestra.training.batch import Micro, Row

What = Literal["old", "anchor", "ref", "values"]


class Before:
    """A number a token of each row, by what it is; micro-batches may be cut differently when they are asked for."""

    def __init__(self, rows: Sequence[Row], *, level: Level) -> None:
        self._level = level
        self._known: dict[What, dict[int, list[float]]] = {}  # by the row's identity
        self._rows: dict[int, list[Row]] = {}  # of each episode
        self._last: dict[int, float] = {}
        for row in rows:
            self._rows.setdefault(row.episode, []).append(row)

    def note(self, what: What, micro: Micro, numbers: Tensor) -> None:
        known = self._known.setdefault(what, {})
        for row, values in zip(micro.rows, micro.read(numbers), strict=True):
            known[id(row)] = values

    def note_last(self, micro: Micro, values: Tensor | None) -> None:
        """The critic's word on what followed the last turn of episodes that were cut short."""
        if values is not None:
            for row, numbers in zip(micro.rows, micro.read(values), strict=True):
                self._last[row.episode] = numbers[-1]

    def episode(self, index: int, trajectory: Trajectory) -> Episode:
        """The trajectory's numbers, for an algorithm to give credit."""
        values = self._values(index)
        return Episode.of(
            trajectory,
            values=values if self._level == "turn" else None,
            token_values=values if self._level == "token" else None,
            last_value=self._last.get(index, 0.0),
            kl=self._kl(index, len(trajectory.turns)),
        )

    def old_logprobs(self, micro: Micro) -> Tensor:
        """Of the policy that sampled."""
        known = self._fill("old", micro)
        return micro.old_logprobs if known is None else known

    def anchor_logprobs(self, micro: Micro) -> Tensor | None:
        return self._fill("anchor", micro)

    def ref_logprobs(self, micro: Micro) -> Tensor | None:
        return self._fill("ref", micro)

    def old_values(self, micro: Micro) -> Tensor | None:
        return self._fill("values", micro)

    def _fill(self, what: What, micro: Micro) -> Tensor | None:
        known = self._known.get(what)
        if known is None:
            return None
        return micro.fill([known.get(id(row), [0.0] * len(row.ids)) for row in micro.rows])  # a blank one is not known

    def _values(self, index: int) -> list[float] | None:
        """A number a turn, or a sampled token, in order."""
        known = self._known.get("values")
        if known is None:
            return None
        if self._level == "token":
            return [
                value
                for row in self._rows[index]
                for value, sampled in zip(known[id(row)], row.mask, strict=True)
                if sampled
            ]
        of_turn: dict[int, float] = {}
        for row in self._rows[index]:
            for turn, value in zip(row.turn_index, known[id(row)], strict=True):
                if turn >= 0:
                    of_turn.setdefault(turn, value)  # its first token's: there the observation ends
        return [value for _, value in sorted(of_turn.items())]

    def _kl(self, index: int, turns: int) -> list[float] | None:
        """To the reference, of the policy that sampled; a number a turn."""
        known = self._known.get("ref")
        if known is None:
            return None
        sums = [0.0] * turns
        for row in self._rows[index]:
            old = torch.tensor([self._known.get("old", {}).get(id(row), row.logprobs)])
            penalty = kl_reward(old, torch.tensor([known[id(row)]]), torch.tensor([row.mask]))[0].tolist()
            sums = [a + b for a, b in zip(sums, to_turns(penalty, row.turn_index, turns), strict=True)]
        return sums

"""Token samples and credit -> padded tensors, micro-batch by micro-batch. Nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from torch import Tensor

from palestra.algorithms import to_tokens
from palestra.errors import BadValue
from palestra.rollout.samples import Sample, to_samples
from palestra.rollout.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One token sample of one episode."""

    episode: int  # its place in the batch
    ids: list[int]
    mask: list[int]  # 1 where the policy sampled
    logprobs: list[float]  # as sampled
    turn_index: list[int]

    @classmethod
    def of(cls, sample: Sample, episode: int) -> Row:
        return cls(
            episode=episode,
            ids=sample.ids,
            mask=sample.mask,
            logprobs=sample.logprobs,
            turn_index=sample.turn_index,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """A few rows as tensors [B, T], padded on the right."""

    rows: list[Row]
    ids: Tensor
    attention: Tensor  # bool; False on padding
    mask: Tensor  # bool; True on the tokens that count: those the policy sampled
    old_logprobs: Tensor
    shared: int = 0  # that many first tokens are the same in every row, and nothing is asked of them

    def fill(self, per_row: Sequence[Sequence[float]]) -> Tensor:
        """A number a token of each row -> [B, T]."""
        return _padded(per_row, self.ids.shape[1], 0.0, torch.float32, self.ids.device)

    def from_turns(self, per_turn: Sequence[Sequence[float]]) -> Tensor:
        """A number a turn of each episode -> [B, T], on the tokens its turn sampled."""
        return self.fill([to_tokens(per_turn[row.episode], row.turn_index) for row in self.rows])

    @property
    def turn_starts(self) -> Tensor:
        """[B, T] bool: the first token each turn sampled; the observation ends right before it."""
        starts = []
        for row in self.rows:
            seen: set[int] = set()
            starts.append([float(t >= 0 and t not in seen and not seen.add(t)) for t in row.turn_index])  # type: ignore[func-returns-value]
        return self.fill(starts).bool()


def rows_of(trajectories: Sequence[Trajectory]) -> list[Row]:
    """Every token sample of every trajectory."""
    return [Row.of(sample, i) for i, trajectory in enumerate(trajectories) for sample in to_samples(trajectory)]


def everything(rows: Sequence[Row]) -> list[Row]:
    """The same rows with what was read counted too, but for what all begin with: there is nothing to learn in it."""
    same = max(1, shared_prefix(rows))
    return [replace(row, mask=[*row.mask[:same], *[1] * (len(row.ids) - same)]) for row in rows]


def shared_prefix(rows: Sequence[Row]) -> int:
    """How many first tokens all rows share."""
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)  # no other two differ earlier
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def micro_batches(rows: Sequence[Row], token_budget: int, device: torch.device) -> list[Micro]:
    """All rows, alike lengths together, at most `token_budget` tokens each, padding included."""
    longest = max((len(row.ids) for row in rows), default=0)
    if longest > token_budget:
        raise BadValue(f"a conversation of {longest} tokens does not fit in token_budget={token_budget}; raise it")
    found: list[Micro] = []
    group: list[Row] = []
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        if group and (len(group) + 1) * len(group[0].ids) > token_budget:
            found.append(_micro(group, device))
            group = []
        group.append(row)
    if group:
        found.append(_micro(group, device))
    return found


def minibatches(count: int, parts: int, rng: Random) -> list[list[int]]:
    """Indices of `count` episodes in `parts` parts of about equal size, shuffled where there are several."""
    order = list(range(count))
    if parts == 1:
        return [order]
    rng.shuffle(order)
    return [sorted(order[part::parts]) for part in range(parts) if order[part::parts]]


def _micro(rows: list[Row], device: torch.device) -> Micro:
    width = max(len(row.ids) for row in rows)
    return Micro(
        rows=rows,
        ids=_padded([row.ids for row in rows], width, 0, torch.long, device),
        attention=_padded([[1] * len(row.ids) for row in rows], width, 0, torch.bool, device),
        mask=_padded([row.mask for row in rows], width, 0, torch.bool, device),
        old_logprobs=_padded([row.logprobs for row in rows], width, 0.0, torch.float32, device),
        shared=_shared(rows),
    )


def _shared(rows: list[Row]) -> int:
    """The prefix that may be read once for all rows; what is predicted must still be predicted row by row."""
    asked = min((row.mask.index(1) for row in rows if 1 in row.mask), default=1)
    return max(0, min(shared_prefix(rows), asked - 1))


def _padded(
    lists: Sequence[Sequence[float]], width: int, pad: float, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in lists], dtype=dtype, device=device)

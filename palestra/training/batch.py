"""Token samples -> tensors, micro-batch by micro-batch: padded or packed, what all rows begin with read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import torch
from torch import Tensor

from palestra.algorithms import to_tokens
from palestra.errors import BadValue
from palestra.rollout.samples import Sample, to_samples
from palestra.rollout.types import Trajectory

WORTH_SHARING = 256  # tokens saved, from which a second call of the model pays


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One token sample of one episode."""

    episode: int  # its place in the batch
    ids: list[int]
    mask: list[int]  # 1 where the policy sampled
    logprobs: list[float]  # as sampled
    turn_index: list[int]
    first: int = 0  # how many tokens the episode had sampled before this row

    @classmethod
    def of(cls, sample: Sample, episode: int, first: int = 0) -> Row:
        return cls(
            episode=episode,
            ids=sample.ids,
            mask=sample.mask,
            logprobs=sample.logprobs,
            turn_index=sample.turn_index,
            first=first,
        )

    @classmethod
    def prompt(cls, ids: Sequence[int], episode: int) -> Row:
        """A prompt that nobody answered. The token after it stands for the answer: it is neither sampled nor read."""
        size = len(ids) + 1
        return cls(episode=episode, ids=[*ids, 0], mask=[0] * size, logprobs=[0.0] * size, turn_index=[-1] * size)

    @property
    def sampled(self) -> int:
        return sum(self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """A few rows as tensors [B, T]: a row a line, or several one after the other where they are packed.

    What all rows begin with may be taken out and stand once in `prefix`; then [B, T] speaks of the rest alone.
    """

    lines: list[list[Row]]
    prefix: Tensor  # [1, S]; nothing is asked of it
    ids: Tensor
    segments: Tensor  # which row of its line a token is in; -1 on padding
    positions: Tensor  # of a token in its own row
    mask: Tensor  # bool; True on the tokens that count: those the policy sampled
    old_logprobs: Tensor
    packed: bool = False

    @property
    def rows(self) -> list[Row]:
        return [row for line in self.lines for row in line]

    @property
    def attention(self) -> Tensor:
        """[B, T] bool; False on padding."""
        return self.segments >= 0

    @property
    def shared(self) -> int:
        """How many first tokens of every row stand in the prefix."""
        return self.prefix.shape[1]

    @property
    def lengths(self) -> Tensor | None:
        """[B, T]: sampled tokens of the row each token is in; None: a line is a row."""
        return self.fill([[row.sampled] * len(row.ids) for row in self.rows]) if self.packed else None

    def fill(self, per_row: Sequence[Sequence[float]]) -> Tensor:
        """A number a token of each row -> [B, T]."""
        return _laid(self.lines, per_row, self.shared, self.ids.shape[1], 0.0, torch.float32, self.ids.device)

    def read(self, numbers: Tensor) -> list[list[float]]:
        """The way back: [B, T] -> a number a token of each row, 0 in the prefix."""
        found = []
        for line, values in zip(self.lines, numbers.tolist(), strict=True):
            at = 0
            for row in line:
                size = len(row.ids) - self.shared
                found.append([0.0] * self.shared + values[at : at + size])
                at += size
        return found

    def from_turns(self, per_turn: Sequence[Sequence[float]]) -> Tensor:
        """A number a turn of each episode -> [B, T], on the tokens its turn sampled."""
        return self.fill([to_tokens(per_turn[row.episode], row.turn_index) for row in self.rows])

    def from_sampled(self, per_token: Sequence[Sequence[float]]) -> Tensor:
        """A number a sampled token of each episode, in order -> [B, T]."""
        laid = []
        for row in self.rows:
            numbers = iter(per_token[row.episode][row.first : row.first + row.sampled])
            laid.append([next(numbers) if sampled else 0.0 for sampled in row.mask])
        return self.fill(laid)

    @property
    def turn_starts(self) -> Tensor:
        """[B, T] bool: the first token each turn sampled; the observation ends right before it."""
        starts = []
        for row in self.rows:
            seen: set[int] = set()
            starts.append([float(t >= 0 and t not in seen and not seen.add(t)) for t in row.turn_index])  # type: ignore[func-returns-value]
        return self.fill(starts).bool()

    @property
    def ends(self) -> Tensor:
        """[B, T] bool: the last token of each row."""
        return self.fill([[0.0] * (len(row.ids) - 1) + [1.0] for row in self.rows]).bool()


def rows_of(trajectories: Sequence[Trajectory]) -> list[Row]:
    """Every token sample of every trajectory."""
    rows = []
    for i, trajectory in enumerate(trajectories):
        first = 0
        for sample in to_samples(trajectory):
            rows.append(Row.of(sample, i, first))
            first += rows[-1].sampled
    return rows


def staleness(trajectories: Sequence[Trajectory], version: int) -> tuple[int, int, int]:
    """How many versions older than `version` the sampled tokens' weights were: the sum, over how many, and the most."""
    total = count = most = 0
    for trajectory in trajectories:
        for turn in trajectory.turns:
            for call in turn.action.calls:
                age = max(0, version - call.version)
                total += age * len(call.ids)
                count += len(call.ids)
                most = max(most, age)
    return total, count, most


def everything(rows: Sequence[Row]) -> list[Row]:
    """The same rows with what was read counted too, but for what all begin with: there is nothing to learn in it."""
    same = max(1, shared_prefix(rows))
    return [replace(row, mask=[*row.mask[:same], *[1] * (len(row.ids) - same)]) for row in rows]


def shared_prefix(rows: Sequence[Row]) -> int:
    """How many first tokens all rows share."""
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)  # no other two differ earlier
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def micro_batches(
    rows: Sequence[Row], token_budget: int, device: torch.device, *, share: bool = False, pack: bool = False
) -> list[Micro]:
    """All rows, alike lengths together, at most `token_budget` tokens each, padding included.

    `share`: what the rows of a micro-batch begin with is taken out where that pays. `pack`: lines as long as the
    longest row are filled up with shorter ones.
    """
    longest = max((len(row.ids) for row in rows), default=0)
    if longest > token_budget:
        raise BadValue(f"a conversation of {longest} tokens does not fit in token_budget={token_budget}; raise it")
    if pack:
        return _packed(rows, token_budget, device, share=share)
    found: list[Micro] = []
    group: list[Row] = []
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        if group and (len(group) + 1) * len(group[0].ids) > token_budget:
            found.append(_micro([[row] for row in group], device, _shared(group) if share else 0))
            group = []
        group.append(row)
    if group:
        found.append(_micro([[row] for row in group], device, _shared(group) if share else 0))
    return found


def blank(device: torch.device) -> Micro:
    """A micro-batch nothing is learned from, for a process that has none where others have one."""
    return _micro([[Row.prompt([0], 0)]], device, 0)


def minibatches(count: int, parts: int, rng: Random) -> list[list[int]]:
    """Indices of `count` episodes in `parts` parts of about equal size, shuffled where there are several."""
    order = list(range(count))
    if parts == 1:
        return [order]
    rng.shuffle(order)
    return [sorted(order[part::parts]) for part in range(parts) if order[part::parts]]


def _packed(rows: Sequence[Row], token_budget: int, device: torch.device, *, share: bool) -> list[Micro]:
    """Longest first, each row into the first line with room for it."""
    if not rows:
        return []
    shared = _shared(rows) if share else 0
    width = max(len(row.ids) for row in rows) - shared
    lines: list[list[Row]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        size = len(row.ids) - shared
        at = next((i for i, left in enumerate(room) if left >= size), None)
        if at is None:
            at = len(lines)
            lines.append([])
            room.append(width)
        lines[at].append(row)
        room[at] -= size
    height = max(1, token_budget // (width + shared))
    return [_micro(lines[i : i + height], device, shared, packed=True) for i in range(0, len(lines), height)]


def _micro(lines: list[list[Row]], device: torch.device, shared: int, *, packed: bool = False) -> Micro:
    rows = [row for line in lines for row in line]
    width = max(sum(len(row.ids) - shared for row in line) for line in lines)
    segments = [[at] * len(row.ids) for line in lines for at, row in enumerate(line)]

    def laid(per_row: Sequence[Sequence[float]], pad: float, dtype: torch.dtype) -> Tensor:
        return _laid(lines, per_row, shared, width, pad, dtype, device)

    return Micro(
        lines=lines,
        prefix=torch.tensor([rows[0].ids[:shared]], dtype=torch.long, device=device),
        ids=laid([row.ids for row in rows], 0, torch.long),
        segments=laid(segments, -1, torch.long),
        positions=laid([range(len(row.ids)) for row in rows], 0, torch.long),
        mask=laid([row.mask for row in rows], 0, torch.bool),
        old_logprobs=laid([row.logprobs for row in rows], 0.0, torch.float32),
        packed=packed,
    )


def _shared(rows: Sequence[Row]) -> int:
    """The prefix that may be read once for all rows; what is predicted must still be predicted row by row."""
    asked = min((row.mask.index(1) if 1 in row.mask else len(row.ids) - 1 for row in rows), default=1)
    shared = max(0, min(shared_prefix(rows), asked - 1))
    return shared if shared * (len(rows) - 1) >= WORTH_SHARING else 0


def _laid(
    lines: Sequence[Sequence[Row]],
    per_row: Sequence[Sequence[float]],
    shared: int,
    width: int,
    pad: float,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """A number a token of each row, rows in order -> [B, T]: without the prefix, line by line, padded on the right."""
    numbers = iter(per_row)
    laid: list[float] = []
    for i, line in enumerate(lines, 1):
        for _ in line:
            laid.extend(next(numbers)[shared:])
        laid.extend([pad] * (i * width - len(laid)))
    # By way of numpy, which reads one long list twice as fast as torch reads a list of lists.
    kind = {torch.long: np.int64, torch.bool: np.bool_, torch.float32: np.float32}[dtype]
    return torch.from_numpy(np.array(laid, kind)).view(len(lines), width).to(device)

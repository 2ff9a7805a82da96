"""Convert training samples to micro-batches of tensors, padded or packed, with shared prefixes factored out.

There are two packed layouts. With `rows`, several samples share a row, and attention needs a mask. With `flat`, a
micro-batch is a single row without padding, for the forward pass in `packed_decoder`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.algorithms.base import RatioLevel
from palestra.rollout.samples import TrainingSample
from palestra.rollout.types import Trajectory

Layout = Literal["padded", "rows", "flat"]

# Number of tokens from which attention without a mask is faster for small models, by type of device.
LONG_SAMPLES = {"cpu": 600, "cuda": 150}
MIN_SAVED_TOKENS = 256  # a shared prefix is computed separately only if that saves at least this many tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Samples as tensors [B, T], with one sample per row or several samples packed into a row.

    A prefix that all samples share may be factored out into `prefix`; [B, T] then refers to the remaining tokens.
    """

    rows: list[list[TrainingSample]]
    prefix: Tensor  # [1, S]; prefix tokens are excluded from the loss
    ids: Tensor
    segments: Tensor  # index of each token's sample within the row; -1 for padding
    positions: Tensor  # position of each token within its sample
    mask: Tensor  # bool; True for tokens in the loss (those that the policy sampled)
    targets: tuple[Tensor, Tensor]  # row and column of each token in the loss
    layout: Layout = "padded"

    @property
    def samples(self) -> list[TrainingSample]:
        return [sample for row in self.rows for sample in row]

    @property
    def attention(self) -> Tensor:
        """Attention mask [B, T] as booleans: False for padding."""
        return self.segments >= 0

    @property
    def shared(self) -> int:
        """Length of the shared prefix."""
        return self.prefix.shape[1]

    @property
    def lengths(self) -> Tensor:
        """Number of loss tokens in each token's episode [B, T]; an episode may consist of several samples."""
        return self._spread([sample.episode_tokens for sample in self.samples], 0.0, torch.float32)

    @property
    def loss_mask(self) -> Tensor:
        """Boolean mask [B, T] for the tokens in the policy loss."""
        column = self.column("loss_mask")
        return self.mask if column is None else column.bool()

    def ratio_ids(self, level: RatioLevel) -> Tensor | None:
        """Return ids [B, T] that are equal for tokens with a common probability ratio; None if `level` is "token"."""
        if level == "token":
            return None
        numbers = itertools.count()
        ids = []
        for sample in self.samples:
            of_turn: defaultdict[int, int] = defaultdict(lambda: next(numbers))
            ids.append([of_turn[turn if level == "turn" else 0] for turn in sample.turn_index])
        return self.fill(ids)

    def column(self, name: str) -> Tensor | None:
        """Return the samples' `name` column as a tensor [B, T], or None if it was not filled."""
        columns = [getattr(sample, name) for sample in self.samples]
        return None if columns[0] is None else self.fill(columns)

    def fill(self, per_sample: Sequence[Sequence[float]]) -> Tensor:
        """Convert one list per sample, with one number per token, to a tensor [B, T]."""
        numbers = _layout(self.rows, per_sample, self.shared, self.ids.shape[1], 0.0, torch.float32)
        return to_device(numbers, self.ids.device)

    def _spread(self, per_sample: Sequence[float], pad: float, dtype: torch.dtype) -> Tensor:
        """Return a tensor [B, T] with the sample's number at each of its tokens."""
        array = _spread(self.rows, per_sample, self.shared, self.ids.shape[1], pad)
        return to_device(array.astype(_NUMPY[dtype]), self.ids.device)

    def read(self, numbers: Tensor, prefix: float = 0.0) -> list[list[float]]:
        """Convert a tensor [B, T] to one list per sample, with `prefix` for the tokens in the shared prefix."""
        lists = []
        for row, values in zip(self.rows, numbers.tolist(), strict=True):
            start = 0
            for sample in row:
                size = len(sample) - self.shared
                lists.append([prefix] * self.shared + values[start : start + size])
                start += size
        return lists

    def from_turns(self, per_turn: Sequence[Sequence[float]], other: float = 0.0) -> Tensor:
        """Return a tensor [B, T] with the turn's value at each sampled token, and `other` elsewhere."""
        return self.fill(
            [
                [per_turn[sample.episode][turn] if turn >= 0 else other for turn in sample.turn_index]
                for sample in self.samples
            ]
        )

    @property
    def turn_starts(self) -> Tensor:
        """Boolean mask [B, T] for the first sampled token in each turn, which follows the turn's observation."""
        starts = []
        for sample in self.samples:
            seen: set[int] = set()
            starts.append([float(t >= 0 and t not in seen and not seen.add(t)) for t in sample.turn_index])  # type: ignore[func-returns-value]
        return self.fill(starts).bool()

    @property
    def ends(self) -> Tensor:
        """Boolean mask [B, T] for the last token in each sample."""
        return self.fill([[0.0] * (len(sample) - 1) + [1.0] for sample in self.samples]).bool()


def staleness(trajectories: Sequence[Trajectory], version: int) -> tuple[int, int, int]:
    """Return the sum, count and maximum of the sampled tokens' ages.

    The age of a token is the difference between `version` and the version of the weights that sampled it.
    """
    total = count = oldest = 0
    for trajectory in trajectories:
        for turn in trajectory.turns:
            for call in turn.action.calls:
                age = max(0, version - call.version)
                total += age * len(call.ids)
                count += len(call.ids)
                oldest = max(oldest, age)
    return total, count, oldest


def with_observations(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Return copies of the samples whose loss mask includes every token after the prefix shared by all samples."""
    start = max(1, shared_prefix(samples))
    return [replace(sample, mask=[*sample.mask[:start], *[1] * (len(sample) - start)]) for sample in samples]


def shared_prefix(samples: Sequence[TrainingSample]) -> int:
    """Return the length of the longest prefix that all samples share."""
    # The common prefix of all lists equals that of the lexicographically smallest and largest lists.
    first, last = min(sample.ids for sample in samples), max(sample.ids for sample in samples)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def are_long(samples: Sequence[TrainingSample], device: torch.device) -> bool:
    """Return whether samples have at least `LONG_SAMPLES` tokens on average, without the prefix that all share."""
    limit = LONG_SAMPLES.get(device.type, LONG_SAMPLES["cpu"])
    return bool(samples) and sum(map(len, samples)) / len(samples) - shared_prefix(samples) >= limit


def micro_batches(
    samples: Sequence[TrainingSample],
    token_budget: int,
    device: torch.device,
    *,
    share_prefix: bool = False,
    layout: Layout = "padded",
) -> list[MicroBatch]:
    """Group samples of similar length into micro-batches of at most `token_budget` tokens, including padding.

    `share_prefix` factors out a common prefix if that saves enough tokens. In the layout "rows", rows are as long as
    the longest sample; in the layout "flat", every micro-batch is one row. A sample that exceeds the budget is a
    separate micro-batch.
    """
    if layout == "rows":
        return _packed(samples, token_budget, device, share_prefix=share_prefix)
    if layout == "flat":
        return _flat(samples, token_budget, device, share_prefix=share_prefix)
    batches: list[MicroBatch] = []
    group: list[TrainingSample] = []
    for sample in sorted(samples, key=lambda sample: -len(sample)):
        if group and (len(group) + 1) * len(group[0]) > token_budget:
            batches.append(_micro_batch([[each] for each in group], device, _prefix(group) if share_prefix else 0))
            group = []
        group.append(sample)
    if group:
        batches.append(_micro_batch([[each] for each in group], device, _prefix(group) if share_prefix else 0))
    return batches


def blank(device: torch.device, columns: Iterable[str] = ()) -> MicroBatch:
    """Return a micro-batch with an empty loss mask, for a process that has fewer micro-batches than the others."""
    sample = TrainingSample.of_prompt([0])
    for name in columns:
        setattr(sample, name, [0.0] * len(sample))
    return _micro_batch([[sample]], device, 0)


def minibatches(episodes: Sequence[int], parts: int, rng: Random) -> list[list[int]]:
    """Split the indices of the episodes into `parts` minibatches of similar size; shuffle if `parts` > 1."""
    order = list(episodes)
    if parts == 1:
        return [order]
    rng.shuffle(order)
    return [sorted(order[part::parts]) for part in range(parts) if order[part::parts]]


def _packed(
    samples: Sequence[TrainingSample], token_budget: int, device: torch.device, *, share_prefix: bool
) -> list[MicroBatch]:
    """Pack samples into rows with the first-fit algorithm, longest sample first."""
    if not samples:
        return []
    shared = _prefix(samples) if share_prefix else 0
    width = max(len(sample) for sample in samples) - shared
    rows: list[list[TrainingSample]] = []
    space: list[int] = []
    for sample in sorted(samples, key=lambda sample: -len(sample)):
        size = len(sample) - shared
        index = next((i for i, left in enumerate(space) if left >= size), None)
        if index is None:
            index = len(rows)
            rows.append([])
            space.append(width)
        rows[index].append(sample)
        space[index] -= size
    height = max(1, token_budget // (width + shared))
    return [_micro_batch(rows[i : i + height], device, shared, "rows") for i in range(0, len(rows), height)]


def _flat(
    samples: Sequence[TrainingSample], token_budget: int, device: torch.device, *, share_prefix: bool
) -> list[MicroBatch]:
    """Divide samples into rows of at most `token_budget` tokens, longest sample first.

    Attention pads samples to the length of a similarly long one, so samples of similar length share a micro-batch.
    """
    shared = _prefix(samples) if share_prefix and samples else 0
    rows: list[list[TrainingSample]] = []
    space = 0
    for sample in sorted(samples, key=lambda sample: -len(sample)):
        size = len(sample) - shared
        if not rows or size > space:
            rows.append([])
            space = token_budget - shared
        rows[-1].append(sample)
        space -= size
    return [_micro_batch([row], device, shared, "flat") for row in rows]


def _micro_batch(
    rows: list[list[TrainingSample]], device: torch.device, shared: int, layout: Layout = "padded"
) -> MicroBatch:
    samples = [sample for row in rows for sample in row]
    width = max(sum(len(sample) - shared for sample in row) for row in rows)
    segments = _spread(rows, [index for row in rows for index in range(len(row))], shared, width, -1)
    starts = np.concatenate([np.cumsum([0, *(len(sample) - shared for sample in row)])[:-1] for row in rows])
    positions = np.arange(width) - _spread(rows, starts, shared, width, 0) + shared
    positions[segments < 0] = 0
    mask = _layout(rows, [sample.mask for sample in samples], shared, width, 0, torch.bool)
    row, column = mask.nonzero()  # on the host, because a GPU would have to finish its work first
    return MicroBatch(
        rows=rows,
        prefix=torch.tensor([samples[0].ids[:shared]], dtype=torch.long, device=device),
        ids=to_device(_layout(rows, [sample.ids for sample in samples], shared, width, 0, torch.long), device),
        segments=to_device(segments, device),
        positions=to_device(positions, device),
        mask=to_device(mask, device),
        targets=(to_device(row, device), to_device(column, device)),
        layout=layout,
    )


def _prefix(samples: Sequence[TrainingSample]) -> int:
    """Return the length of the prefix to factor out; it ends before the token that precedes the first loss token."""
    first = min((s.mask.index(1) if 1 in s.mask else len(s) - 1 for s in samples), default=1)
    shared = max(0, min(shared_prefix(samples), first - 1))
    return shared if shared * (len(samples) - 1) >= MIN_SAVED_TOKENS else 0


_NUMPY: dict[torch.dtype, Any] = {torch.long: np.int64, torch.bool: np.bool_, torch.float32: np.float32}


def _layout(
    rows: Sequence[Sequence[TrainingSample]],
    per_sample: Sequence[Sequence[float]],
    shared: int,
    width: int,
    pad: float,
    dtype: torch.dtype,
) -> NDArray[Any]:
    """Stack the per-token values of the samples into an array [B, T], padded on the right, without prefix tokens."""
    numbers = iter(per_sample)
    flat: list[float] = []
    for i, row in enumerate(rows, 1):
        for _ in row:
            flat.extend(next(numbers)[shared:])
        flat.extend([pad] * (i * width - len(flat)))
    # NumPy converts one long list twice as fast as torch converts a list of lists.
    return np.array(flat, _NUMPY[dtype]).reshape(len(rows), width)


def _spread(
    rows: Sequence[Sequence[TrainingSample]], per_sample: Any, shared: int, width: int, pad: float
) -> NDArray[Any]:
    """Repeat one number per sample for each of its tokens, in rows [B, T] as in `_layout`."""
    values: list[float] = []
    counts: list[int] = []
    numbers = iter(per_sample)
    for row in rows:
        sizes = [len(sample) - shared for sample in row]
        values += [next(numbers) for _ in row] + [pad]
        counts += [*sizes, width - sum(sizes)]
    return np.repeat(np.array(values), counts).reshape(len(rows), width)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy a NumPy array to a device."""
    tensor = torch.from_numpy(array)
    # Only a copy from pinned memory lets the host continue while the GPU works.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

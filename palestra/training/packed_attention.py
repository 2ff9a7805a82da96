"""Causal attention within each document of a packed row, without masks.

Linear layers process a packed row without padding. Attention kernels are fastest for causal attention over rectangular
tensors, so documents of similar length are copied into one such tensor, padded on the right: with causal attention, no
token attends to the padding after it. A prefix that all documents share is stored once in the row and copied in front
of each document. The copies cost little time compared with attention, and less than a kernel that supports masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from palestra.training.batch import to_device

MIN_STEP = 32  # lengths of groups are multiples of this number of tokens
STEPS_PER_OCTAVE = 8  # number of group lengths between a power of two and the next one
MIN_FILL = 0.75  # a group includes all documents that are at least this fraction of its length
# cuDNN is almost twice as fast as the other kernels on Hopper for documents of at least this length, but needs
# 0.1 s to prepare each shape, so only a few shapes are used.
CUDNN_LENGTH = 1024
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Group(NamedTuple):
    """Documents that are padded to one length."""

    documents: int
    length: int  # including the shared prefix
    start: int  # index of the first token in the padded sequence


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """Positions of a packed row's tokens in padded groups of documents; computed once and used by all layers."""

    groups: list[Group]
    shared: int  # length of the shared prefix, which precedes the documents in the row
    index: Tensor | None  # position in the row for each padded token; None if both sequences are equal
    inverse: Tensor  # padded position of each token in the row
    unused: Tensor  # padded positions whose output is not used: padding and all copies of the prefix except the first
    prefixes: Tensor  # padded positions of the prefix tokens in each document, [documents * shared]


def plan(lengths: Sequence[int], shared: int, device: torch.device) -> DocumentPlan:
    """Plan the attention for a row that contains a shared prefix and documents with `lengths` further tokens."""
    sizes = np.asarray(lengths, np.int64)
    ends = shared + np.cumsum(sizes)
    equal = shared == 0 and len(set(lengths)) == 1
    if equal and lengths[0] >= CUDNN_LENGTH:
        equal = lengths[0] % length_step(lengths[0]) == 0
    groups: list[Group] = []
    index, valid, prefixes = [], [], []
    total = 0
    for members, length in [(np.arange(len(sizes)), lengths[0])] if equal else _grouped(shared + sizes):
        position = np.arange(length)
        first = (ends - sizes)[members, None] - shared
        place = np.minimum(np.where(position < shared, position, first + position), ends[members, None] - 1)
        index.append(place.ravel())
        valid.append((position < shared + sizes[members, None]).ravel())
        prefixes.append((total + np.arange(len(members))[:, None] * length + np.arange(shared)).ravel())
        groups.append(Group(len(members), length, total))
        total += len(members) * length
    flat, used = np.concatenate(index), np.concatenate(valid)
    inverse = np.zeros(int(ends[-1]), np.int64)
    filled = np.flatnonzero(used)[::-1]  # reversed, so that the first copy of the prefix is the one that is used
    inverse[flat[filled]] = filled
    unused = np.ones(total, np.bool_)
    unused[inverse] = False
    arrays = (flat, inverse, np.flatnonzero(unused), np.concatenate(prefixes))
    on_device = [to_device(array, device) for array in arrays]
    return DocumentPlan(groups, shared, None if equal else on_device[0], *on_device[1:])


def _grouped(sizes: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield groups of documents and the lengths to which they are padded, longest first."""
    order = np.argsort(-sizes, kind="stable")
    descending = sizes[order]
    start = 0
    while start < len(order):
        step = length_step(int(descending[start]))
        length = -(-int(descending[start]) // step) * step
        shortest = min(MIN_FILL * length, length - step + 1)
        count = int(np.searchsorted(-descending[start:], -shortest, side="right"))
        if length >= CUDNN_LENGTH:
            count = 1 << (count.bit_length() - 1)  # a power of two, for few different shapes
        yield order[start : start + count], length
        start += count


def length_step(tokens: int) -> int:
    """Return the step between group lengths at a document's length: an eighth of the power of two below it."""
    return max(MIN_STEP, (1 << max(0, tokens.bit_length() - 1)) // STEPS_PER_OCTAVE)


class _Pad(torch.autograd.Function):
    """Copy the tokens of a row [T, ...] into the padded groups [P, ...]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: DocumentPlan) -> Tensor:
        ctx.layout = layout
        assert layout.index is not None  # noqa: S101  # narrows the type
        return x.index_select(0, layout.index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        layout: DocumentPlan = ctx.layout
        row = grad.index_select(0, layout.inverse)
        if layout.shared:  # every document contributes to the gradient of the prefix
            copies = grad.index_select(0, layout.prefixes).view(-1, layout.shared, *grad.shape[1:])
            row[: layout.shared] = copies.sum(0, dtype=torch.promote_types(grad.dtype, torch.float32)).to(grad.dtype)
        return row, None


class _Unpad(torch.autograd.Function):
    """Copy the tokens in the padded groups [P, ...] back into the row [T, ...]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: DocumentPlan) -> Tensor:
        ctx.layout = layout
        return x.index_select(0, layout.inverse)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        layout: DocumentPlan = ctx.layout
        assert layout.index is not None  # noqa: S101  # narrows the type
        return grad.index_select(0, layout.index).index_fill_(0, layout.unused, 0), None


def attend(q: Tensor, k: Tensor, v: Tensor, layout: DocumentPlan, *, window: int | None, scale: float) -> Tensor:
    """Return the attention outputs [T, heads * dim] for queries [T, heads, dim] and keys and values [T, kv, dim]."""
    if layout.index is not None:
        q, k, v = (_Pad.apply(x, layout) for x in (q, k, v))  # type: ignore[no-untyped-call]
    sizes = [documents * length for documents, length, _ in layout.groups]
    outputs = []
    for (documents, length, _), *parts in zip(layout.groups, *(_split(x, sizes) for x in (q, k, v)), strict=True):
        heads = (part.view(documents, length, *part.shape[1:]).transpose(1, 2) for part in parts)
        x = _causal(*heads, window=window, scale=scale)
        outputs.append(x.transpose(1, 2).reshape(documents * length, -1))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return output if layout.index is None else _Unpad.apply(output, layout)  # type: ignore[no-untyped-call]


def _split(x: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    return torch.split(x, sizes) if len(sizes) > 1 else [x]  # the backward pass of a split copies the gradients


def _causal(q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float) -> Tensor:
    """Return causal attention for tensors of shape (document, head, token, dim)."""
    length, repeats = q.shape[2], q.shape[1] // k.shape[1]
    mask = None
    if window is not None and length > window:
        position = torch.arange(length, device=q.device)
        distance = position[:, None] - position
        mask = (distance >= 0) & (distance < window)
    grouped = repeats > 1 and mask is None and q.is_cuda and q.dtype != torch.float32
    if repeats > 1 and not grouped:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    options: dict[str, Any] = {"attn_mask": mask, "is_causal": mask is None, "scale": scale, "enable_gqa": grouped}
    if not q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, **options)
    backends = [SDPBackend.CUDNN_ATTENTION, *BACKENDS] if length >= CUDNN_LENGTH else BACKENDS
    with sdpa_kernel(backends, set_priority=True):
        return F.scaled_dot_product_attention(q, k, v, **options)

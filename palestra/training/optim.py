"""Parameters -> the optimiser that moves them: AdamW, or Muon for the matrices and AdamW for the rest.

Muon replaces a matrix's momentum by the nearest matrix whose singular values are all about 1, so that rare directions
move as far as common ones. Small models that learn to read an environment's answers seem to like it (docs/training.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from palestra.training.distributed import cut_like, is_cut, whole

NS_STEPS = 5
NS = (3.4445, -4.775, 2.0315)  # of the quintic iteration: steep at 0, and it leaves [0.7, 1.2] to itself
MOMENTUM = 0.95
MATRIX_SCALE = 0.2  # an orthogonal update of this size per number is as large as one of AdamW


class Muon(torch.optim.Optimizer):
    """W <- W - lr * 0.2 * sqrt(max(n, m)) * orth(g + mu * M),  M <- mu * M + g;  float32 throughout.

    (torch's own computes in bfloat16, which some CPUs only emulate.) Matrices of one shape are done together.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(list(params), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002  # torch's signature
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    alike[tuple(p.shape)].append(p)
            for (rows, columns), params in alike.items():
                # The whole matrix is needed: where it is cut up, every process puts it together for itself.
                updates = torch.stack([whole(self._momentum(p)) for p in params])
                size = group["lr"] * MATRIX_SCALE * max(rows, columns) ** 0.5
                for p, update in zip(params, orthogonal(updates), strict=True):
                    p.add_(cut_like(update.to(p.dtype), p), alpha=-size)

    def _momentum(self, p: Tensor) -> Tensor:
        state = self.state[p]
        grad = p.grad.float()  # type: ignore[union-attr]  # asked for those with one
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(grad)
        state["momentum"].mul_(MOMENTUM).add_(grad)
        return grad.add(state["momentum"], alpha=MOMENTUM)


def orthogonal(matrices: Tensor) -> Tensor:
    """[N, n, m]: each with its singular values moved to about 1, by Newton and Schulz's iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = NS
    for _ in range(NS_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    found: Tensor = x.mT if tall else x
    return found


class Optimiser:
    """One or two torch optimisers as one; each group keeps its learning rate as a multiple of the run's.

    Weights in a coarser type than float32 are kept in float32 beside (`masters`), where small steps add up; so are the
    gradients of a batch's micro-batches.
    """

    def __init__(self, kind: str, model: nn.Module, critic: nn.Module | None, *, weight_decay: float) -> None:
        matrices: list[Tensor] = []
        rest: list[Tensor] = []
        outside = {id(p) for name in ("get_input_embeddings", "get_output_embeddings") for p in _of(model, name)}
        self._pairs: list[tuple[nn.Parameter, Tensor]] = []  # a coarse weight and its master
        for p in model.parameters():
            if p.requires_grad:
                is_matrix = kind == "muon" and p.dim() == 2 and id(p) not in outside
                (matrices if is_matrix else rest).append(self._master(p))
        self.model_parameters = matrices + rest
        self.critic_parameters: list[Tensor] = [] if critic is None else list(critic.parameters())
        self.parts: list[torch.optim.Optimizer] = []
        if matrices:
            self.parts.append(Muon(matrices, 0.0))
        groups = [{"params": rest, "critic": False}, {"params": self.critic_parameters, "critic": True}]
        adam = [group for group in groups if group["params"]]
        if adam:
            self.parts.append(torch.optim.AdamW(adam, lr=0.0, weight_decay=weight_decay, betas=(0.9, 0.95)))

    def _master(self, p: nn.Parameter) -> Tensor:
        if p.dtype == torch.float32:
            return p
        master = p.detach().float().requires_grad_(True)
        self._pairs.append((p, master))
        return master

    @property
    def parameters(self) -> list[Tensor]:
        """What is moved."""
        return self.model_parameters + self.critic_parameters

    def rates(self, lr: float, critic_lr: float) -> None:
        """The learning rates from now on."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = critic_lr if group.get("critic") else lr

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)
        for p, _ in self._pairs:
            p.grad = None

    def collect(self) -> None:
        """Take the gradients of a micro-batch over to the masters."""
        for p, master in self._pairs:
            if p.grad is not None:
                master.grad = p.grad.float() if master.grad is None else master.grad.add_(p.grad)
                p.grad = None

    def clip(self, most: float) -> float:
        """Scale the gradient down to the norm `most`; the norm it had."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, most, norm)
        return float(whole(norm))

    def step(self) -> None:
        for part in self.parts:
            part.step()
        with torch.no_grad():
            for p, master in self._pairs:
                p.copy_(master)

    def forget(self) -> None:
        """Start with clean averages."""
        for part in self.parts:
            part.state.clear()

    def kept(self) -> list[Tensor]:
        """The weights as they are, where they are; `go_back` undoes what was done since."""
        return [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def go_back(self, kept: Sequence[Tensor], share: float) -> None:
        """Undo so much of what was done since `kept`; 1: all of it."""
        for p, was in zip(self.parameters, kept, strict=True):
            p.copy_(was if share == 1 else was + (p - was) * (1 - share))  # all of it: NaN too
        for coarse, master in self._pairs:
            coarse.copy_(master)

    def snapshot(self) -> list[Tensor]:
        """The model's trained weights as they are, put together, on the CPU; every process must call."""
        return [whole(p.detach()).cpu().clone() for p in self.model_parameters]

    @torch.no_grad()
    def restore(self, snapshot: Sequence[Tensor]) -> None:
        """The weights as they were, and clean averages."""
        for p, was in zip(self.model_parameters, snapshot, strict=True):
            p.copy_(cut_like(was.to(p.device), p))
        for coarse, master in self._pairs:
            coarse.copy_(master)
        self.forget()

    def state_dict(self) -> dict[str, Any]:
        """All of it, put together; every process must call."""
        return {
            "parts": [_put_together(part.state_dict()) for part in self.parts],
            "masters": [whole(master.detach()).cpu() for _, master in self._pairs],
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, saved in zip(self.parts, state["parts"], strict=True):
            params = [p for group in part.param_groups for p in group["params"]]
            cut = {i: {k: _cut_up(v, params[i]) for k, v in item.items()} for i, item in saved["state"].items()}
            part.load_state_dict({**saved, "state": cut})
        for (_, master), saved in zip(self._pairs, state["masters"], strict=True):
            master.copy_(cut_like(saved.to(master.device), master))


def _put_together(state: dict[str, Any]) -> dict[str, Any]:
    def one(value: Any) -> Any:
        return whole(value) if isinstance(value, Tensor) and is_cut(value) else value

    numbers = {i: {name: one(value) for name, value in item.items()} for i, item in state["state"].items()}
    return {**state, "state": numbers}


def _cut_up(value: Any, like: Tensor) -> Any:
    if isinstance(value, Tensor) and is_cut(like) and value.shape == like.shape:
        return cut_like(value.to(like.device), like)
    return value


def _of(model: nn.Module, getter: str) -> list[nn.Parameter]:
    layer = getattr(model, getter, lambda: None)()
    return [] if layer is None else list(layer.parameters())

"""Parameters -> the optimiser that moves them: AdamW, or Muon for the matrices and AdamW for the rest.

Muon replaces a matrix's momentum by the nearest matrix whose singular values are all about 1, so that rare directions
move as far as common ones. A small model on a CPU learns to read an environment's answers in about half the updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

NS_STEPS = 5
NS = (3.4445, -4.775, 2.0315)  # of the quintic iteration: steep at 0, and it leaves [0.7, 1.2] to itself
MOMENTUM = 0.95
MATRIX_SCALE = 0.2  # an orthogonal update of this size per number is as large as one of AdamW


class Muon(torch.optim.Optimizer):
    """W <- W - lr * 0.2 * sqrt(max(n, m)) * orth(g + mu * M),  M <- mu * M + g;  float32 throughout.

    (torch's own computes in bfloat16, which some CPUs only emulate.) Matrices of one shape are done together.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(list(params), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002  # torch's signature
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    alike[tuple(p.shape)].append(p)
            for (rows, columns), params in alike.items():
                updates = torch.stack([self._momentum(p) for p in params])
                size = group["lr"] * MATRIX_SCALE * max(rows, columns) ** 0.5
                for p, update in zip(params, orthogonal(updates), strict=True):
                    p.add_(update.to(p.dtype), alpha=-size)

    def _momentum(self, p: nn.Parameter) -> Tensor:
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
    """One or two torch optimisers as one; each group keeps its learning rate as a multiple of the run's."""

    def __init__(self, kind: str, model: nn.Module, critic: nn.Module | None, *, weight_decay: float) -> None:
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        outside = {id(p) for name in ("get_input_embeddings", "get_output_embeddings") for p in _of(model, name)}
        for p in model.parameters():
            if p.requires_grad:
                (matrices if kind == "muon" and p.dim() == 2 and id(p) not in outside else rest).append(p)
        self.model_parameters = matrices + rest
        self.critic_parameters = [] if critic is None else list(critic.parameters())
        self.parts: list[torch.optim.Optimizer] = []
        if matrices:
            self.parts.append(Muon(matrices, 0.0))
        groups = [{"params": rest, "critic": False}, {"params": self.critic_parameters, "critic": True}]
        adam = [group for group in groups if group["params"]]
        self.parts.append(torch.optim.AdamW(adam, lr=0.0, weight_decay=weight_decay, betas=(0.9, 0.95)))

    @property
    def parameters(self) -> list[nn.Parameter]:
        return self.model_parameters + self.critic_parameters

    def rates(self, lr: float, critic_lr: float) -> None:
        """The learning rates from now on."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = critic_lr if group.get("critic") else lr

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def forget(self) -> None:
        """Start with clean averages."""
        for part in self.parts:
            part.state.clear()

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def _of(model: nn.Module, getter: str) -> list[nn.Parameter]:
    layer = getattr(model, getter, lambda: None)()
    return [] if layer is None else list(layer.parameters())

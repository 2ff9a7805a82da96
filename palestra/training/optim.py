"""Optimizers: AdamW, or Muon for weight matrices and AdamW for all other parameters.

Muon replaces the momentum of a weight matrix with an approximately orthogonal matrix (all singular values close to 1),
so that rare directions are updated as much as common ones. It trains small models from scratch faster than AdamW
(docs/experiments.md). The size of the update follows the size of the momentum relative to its running average, so that
a gradient that becomes small moves the weights less, and a zero gradient does not move them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from palestra.training.distributed import full_tensor, is_sharded, shard_like

NS_STEPS = 5
NS = (
    3.4445,
    -4.775,
    2.0315,
)  # Newton-Schulz coefficients that move singular values into about [0.7, 1.2]
MOMENTUM = 0.95
NORM_DECAY = 0.99  # decay per update of the running mean square of the momentum's norm
MOMENTA = frozenset({"momentum", "momentum_weight", "exp_avg"})  # momentum in the states of Muon and AdamW
TINY = 1e-20  # smallest divisor for norms
MATRIX_SCALE = 0.2  # scales an orthogonal update to about the size of an AdamW update
ADAM_EPS = 1e-8  # added to the divisor of AdamW's updates, as in torch
RELATIVE_EPS = 0.3  # eps of embeddings with `ignore_small_gradients`, as a fraction of their gradient's RMS


class Muon(torch.optim.Optimizer):
    """W <- W - lr * 0.2 * sqrt(max(n, m)) * s * orth(U),  U = g + mu * M,  M <- mu * M + g;  float32 throughout.

    s = w min(1, |U| / r), where r is the root of the running mean of |U|^2 (Frobenius norm, with bias correction), and
    w <- mu * w + 1 - mu is the weight of the gradients in the momentum. It starts at 0: the first gradients, which are
    mostly noise, would otherwise move the weights as much as the mean of many gradients.
    torch.optim.Muon is not used because it computes in bfloat16, which some CPUs only emulate. Matrices of the same
    shape are processed in one batch.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(list(params), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002  # signature of the base class
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[tuple(p.shape)].append(p)
            for (rows, columns), params in by_shape.items():
                # The iteration needs full matrices, so every process gathers those that are sharded.
                updates = torch.stack([full_tensor(self._momentum(p)) for p in params])
                size = group["lr"] * MATRIX_SCALE * max(rows, columns) ** 0.5
                scales = self._scales(params, updates)
                for p, update in zip(params, orthogonal(updates) * (-size * scales)[:, None, None], strict=True):
                    p.add_(shard_like(update.to(p.dtype), p))

    def _momentum(self, p: Tensor) -> Tensor:
        state = self.state[p]
        grad = p.grad.float()  # type: ignore[union-attr]  # called only for parameters with a gradient
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(grad)
        state["momentum"].mul_(MOMENTUM).add_(grad)
        return grad.add(state["momentum"], alpha=MOMENTUM)

    def _scales(self, params: Sequence[Tensor], updates: Tensor) -> Tensor:
        """Return s for each update."""
        scales = []
        for p, full_norm in zip(params, updates.norm(dim=(1, 2)), strict=True):
            norm = full_norm.to(p.device)  # offloaded shards are in main memory, the full updates on the GPU
            state = self.state[p]
            if "mean_square" not in state:
                state["mean_square"] = torch.zeros_like(norm)
                state["weight"] = torch.zeros_like(norm)  # sum of the weights in the running mean
                state["momentum_weight"] = torch.zeros_like(norm)
            state["mean_square"].lerp_(norm.square(), 1 - NORM_DECAY)
            state["weight"].lerp_(torch.ones_like(norm), 1 - NORM_DECAY)
            state["momentum_weight"].lerp_(torch.ones_like(norm), 1 - MOMENTUM)
            mean = (state["mean_square"] / state["weight"]).sqrt()
            scales.append((norm / mean.clamp(min=TINY)).clamp(max=1.0) * state["momentum_weight"])
        return torch.stack(scales).to(updates.device)


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately orthogonalize each matrix of [N, n, m] by a Newton-Schulz iteration (singular values near 1)."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
    a, b, c = NS
    for _ in range(NS_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


class Optimizer:
    """One or two torch optimizers behind one interface, with separate learning rates for the model and the critic.

    Weights in a lower precision than float32 have float32 master copies, which accumulate small updates and gradients
    from micro-batches. With `offload`, all weights have master copies in main memory, and they are updated there.
    """

    def __init__(
        self,
        kind: str,
        model: nn.Module,
        critic: nn.Module | None,
        *,
        weight_decay: float,
        critic_body: nn.Module | None = None,
        offload: bool = False,
    ) -> None:
        self._offload = offload
        self._ignore_small_gradients = False
        matrices: list[Tensor] = []
        rest: list[Tensor] = []
        embeddings = {
            id(p) for name in ("get_input_embeddings", "get_output_embeddings") for p in _parameters(model, name)
        }
        self._masters: list[tuple[nn.Parameter, Tensor]] = []  # pairs of a low-precision weight and its master copy
        for p in model.parameters():
            if p.requires_grad:
                is_matrix = kind == "muon" and p.dim() == 2 and id(p) not in embeddings
                (matrices if is_matrix else rest).append(self._master(p))
        self.model_parameters = matrices + rest
        head: list[Tensor] = [] if critic is None else list(critic.parameters())
        body = [] if critic_body is None else [self._master(p) for p in critic_body.parameters() if p.requires_grad]
        self.critic_parameters = head + body
        self.parts: list[torch.optim.Optimizer] = []
        if matrices:
            self.parts.append(Muon(matrices, 0.0))
        groups: list[dict[str, Any]] = [
            {"params": rest, "part": "model"},
            {"params": head, "part": "critic"},
            {"params": body, "part": "critic_body"},
        ]
        if kind == "muon":  # each embedding is a separate group with its own eps
            tables = [p for p in rest if p.dim() == 2]
            groups[0]["params"] = [p for p in rest if p.dim() != 2]
            groups += [{"params": [p], "part": "model", "embedding": True} for p in tables]
        adam = [group for group in groups if group["params"]]
        if adam:
            # The fused implementation needs no temporary copies of the parameters and reads each of them once.
            fused = offload or all(p.is_cuda for group in adam for p in group["params"])
            self.parts.append(
                torch.optim.AdamW(adam, lr=0.0, weight_decay=weight_decay, betas=(0.9, 0.95), fused=fused or None)
            )

    def _master(self, p: nn.Parameter) -> Tensor:
        offload = self._offload and p.is_cuda
        if p.dtype == torch.float32 and not offload:
            return p
        master = p.detach().to("cpu" if offload else p.device, torch.float32).requires_grad_(True)
        self._masters.append((p, master))
        return master

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters that are updated; for low-precision weights, these are the master copies."""
        return self.model_parameters + self.critic_parameters

    def set_lr(
        self, lr: float, critic_lr: float, critic_body_lr: float = 0.0, *, ignore_small_gradients: bool = False
    ) -> None:
        """Set the learning rates of the model, the critic's head and the critic's own network.

        AdamW divides a gradient by its own size, so it moves the embeddings of tokens that never occur, whose gradients
        are a hundredth of the others or less and mostly noise, as far as all others, and all in the same direction.
        With `ignore_small_gradients`, AdamW beside Muon divides by at least a fraction of the typical size.
        """
        self._ignore_small_gradients = ignore_small_gradients
        rates = {"critic": critic_lr, "critic_body": critic_body_lr}
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rates.get(group.get("part", "model"), lr)

    def unallocated_bytes(self) -> int:
        """Return the number of bytes on the weights' device that the next update will allocate."""
        total = 0
        for p, master in self._masters:
            total += 0 if p.grad is not None else p.numel() * p.itemsize
            if master.device == p.device:
                total += 0 if master.grad is not None else 4 * p.numel()
        own = {id(master) for _, master in self._masters}
        for part in self.parts:
            copies = 1 if isinstance(part, Muon) else 2
            for p in (p for group in part.param_groups for p in group["params"]):
                if p.is_cuda or not self._offload:
                    total += 0 if part.state.get(p) else 4 * copies * p.numel()
                    total += 0 if p.grad is not None or id(p) in own else 4 * p.numel()
        return total

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)
        for p, _ in self._masters:
            p.grad = None

    def accumulate(self) -> None:
        """Add a micro-batch's gradients to those of the master copies."""
        for p, master in self._masters:
            if p.grad is not None:
                if master.grad is None:
                    master.grad = p.grad.to(master.device, torch.float32)
                else:
                    master.grad.add_(p.grad.to(master.device))
                p.grad = None

    def clip_grad_norm(self, max_norm: float) -> float:
        """Clip the norm of the gradient to `max_norm`; return the norm before clipping."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, max_norm, norm)
        return float(full_tensor(norm))

    def step(self) -> None:
        for part in self.parts:
            self._set_eps(part)
            part.step()
        with torch.no_grad():
            for p, master in self._masters:
                p.copy_(master)

    def _set_eps(self, part: torch.optim.Optimizer) -> None:
        for group in part.param_groups:
            grad = group["params"][0].grad
            if group.get("embedding") and grad is not None:
                size = float(full_tensor(grad.norm())) / grad.numel() ** 0.5 if self._ignore_small_gradients else 0.0
                group["eps"] = max(ADAM_EPS, RELATIVE_EPS * size)

    @torch.no_grad()
    def reload_masters(self) -> None:
        """Copy the low-precision weights into their master copies, after other code has changed them."""
        for p, master in self._masters:
            master.copy_(p)

    def reset_state(self) -> None:
        """Reset momentum and second moments."""
        for part in self.parts:
            part.state.clear()

    def reset_momentum(self) -> None:
        """Set the momentum to zero, and keep the running averages of the squared gradient."""
        for part in self.parts:
            for state in part.state.values():
                for name in MOMENTA & state.keys():
                    state[name].zero_()

    def copy_parameters(self) -> list[Tensor]:
        """Return a copy of the parameters on their device, for `undo`."""
        return [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def undo(self, before: Sequence[Tensor], fraction: float) -> None:
        """Undo `fraction` of the change since `before`; 1 restores the parameters exactly, even if they are NaN."""
        for p, old in zip(self.parameters, before, strict=True):
            p.copy_(old if fraction == 1 else old + (p - old) * (1 - fraction))
        for coarse, master in self._masters:
            coarse.copy_(master)

    def snapshot(self) -> list[Tensor]:
        """Return full CPU copies of the model's trainable parameters. Every process must call this method."""
        return [full_tensor(p.detach()).cpu().clone() for p in self.model_parameters]

    @torch.no_grad()
    def restore(self, snapshot: Sequence[Tensor]) -> None:
        """Load a snapshot and reset the optimizer state."""
        for p, old in zip(self.model_parameters, snapshot, strict=True):
            p.copy_(shard_like(old.to(p.device), p))
        for coarse, master in self._masters:
            coarse.copy_(master)
        self.reset_state()

    def state_dict(self) -> dict[str, Any]:
        """Return the full optimizer state, gathered if it is sharded. Every process must call this method."""
        return {
            "parts": [_gathered(part.state_dict()) for part in self.parts],
            "masters": [full_tensor(master.detach()).cpu() for _, master in self._masters],
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, saved in zip(self.parts, state["parts"], strict=True):
            params = [p for group in part.param_groups for p in group["params"]]
            sharded = {i: {k: _sharded(v, params[i]) for k, v in item.items()} for i, item in saved["state"].items()}
            part.load_state_dict({**saved, "state": sharded})
        for (_, master), saved in zip(self._masters, state["masters"], strict=True):
            master.copy_(shard_like(saved.to(master.device), master))


def _gathered(state: dict[str, Any]) -> dict[str, Any]:
    def one(value: Any) -> Any:
        return full_tensor(value).cpu() if isinstance(value, Tensor) and is_sharded(value) else value

    states = {i: {name: one(value) for name, value in item.items()} for i, item in state["state"].items()}
    return {**state, "state": states}


def _sharded(value: Any, like: Tensor) -> Any:
    if isinstance(value, Tensor) and is_sharded(like) and value.shape == like.shape:
        return shard_like(value.to(like.device), like)
    return value


def _parameters(model: nn.Module, getter: str) -> list[nn.Parameter]:
    layer = getattr(model, getter, lambda: None)()
    return [] if layer is None else list(layer.parameters())

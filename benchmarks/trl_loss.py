"""Time TRL's loss: the forward and backward pass of its GRPOTrainer on padded micro-batches, without an update.

TRL must be importable, for example with `pip install --no-deps --target FOLDER trl` and PYTHONPATH=FOLDER. Packages
that TRL imports only to load data (datasets, pyarrow, pandas) are replaced with empty modules if they are missing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

ROWS = 8  # conversations per micro-batch, TRL's default
PROMPT = 192  # tokens before the first reply; TRL computes log-probabilities for all tokens after them


class _Empty(ModuleType):
    """Module whose attributes are empty classes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def import_trl() -> Any:
    """Return TRL's GRPOTrainer."""
    for name in ("datasets", "pyarrow", "pyarrow.compute", "pyarrow.types", "pandas"):
        if name.partition(".")[0] in sys.modules or importlib.util.find_spec(name.partition(".")[0]) is None:
            module = _Empty(name)
            module.__spec__ = ModuleSpec(name, None)
            module.__path__ = []
            sys.modules.setdefault(name, module)
    return import_module("trl.trainer.grpo_trainer").GRPOTrainer


def make_trainer(model: Any, steps: int) -> Any:
    """Return a GRPOTrainer with the settings that its loss reads; its constructor would need data and a tokenizer."""
    trainer_class = import_trl()
    import_module("trl.trainer.utils").add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    trainer = trainer_class.__new__(trainer_class)
    settings: dict[str, Any] = {
        "model": model, "accelerator": import_module("accelerate").Accelerator(), "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "importance_sampling_level": "token",
        "beta": 0.0, "loss_type": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, "use_vllm": False,
        "current_gradient_accumulation_steps": steps, "_entropy_bonus_enabled": False,
        "args": SimpleNamespace(delta=None), "_metrics": {"train": defaultdict(list)}, "temperature": 1.0,
    }  # fmt: skip
    for name, value in settings.items():
        setattr(trainer, name, value)
    return trainer


def measure_trl(
    model: Any, count: int, length: int, share: float, runs: int, synchronize: Callable[[], None]
) -> list[float]:
    """Return the seconds of a warm-up and `runs` passes over `count` conversations, with a `share` of loss tokens."""
    import torch

    rows = min(ROWS, count)
    trainer = make_trainer(model, count // rows)
    model.train()
    model.config.use_cache = False
    model.gradient_checkpointing_enable()  # TRL's default
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (count, length), generator=generator).to(model.device)
    prompt = min(PROMPT, length // 4)
    sampled = (torch.arange(length - prompt, device=model.device) % 100 < 100 * share).int().expand(rows, -1)
    times = []
    for _ in range(1 + runs):
        started = perf_counter()
        for part in ids.split(rows):
            inputs = {
                "prompt_ids": part[:, :prompt], "prompt_mask": torch.ones_like(part[:, :prompt]),
                "completion_ids": part[:, prompt:], "completion_mask": torch.ones_like(part[:, prompt:]),
                "tool_mask": sampled, "advantages": torch.ones(rows, device=model.device),
            }  # fmt: skip
            trainer._compute_loss(model, inputs).backward()
        synchronize()
        times.append(perf_counter() - started)
        model.zero_grad(set_to_none=True)
    model.gradient_checkpointing_disable()
    model.eval()
    return times

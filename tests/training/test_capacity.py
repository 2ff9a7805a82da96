"""Test that the memory computed from a model's shape equals the memory that the learner allocates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from palestra.errors import BadValue
from palestra.machine import main_memory
from palestra.training.capacity import GB, Machine, best_plan, learning_memory, plans
from palestra.training.estimate import run_memory
from palestra.training.learner import Learner
from palestra.training.model_shape import ModelShape
from palestra.training.optim import Optimizer
from palestra.training.policy import Policy
from palestra.training.recipe import from_mapping
from palestra.training.step import reinforcement_step
from palestra.training.trust_region import TrustRegion
from tests.training.helpers import batch

SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def config_of(kind: str, **changes: Any) -> Any:
    return transformers.AutoConfig.for_model(kind, **SMALL, **changes)


def empty(config: Any) -> Any:
    auto: Any = transformers.AutoModelForCausalLM  # untyped
    with torch.device("meta"):
        return auto.from_config(config)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 8, "attention_bias": True}),
        ("qwen2", {}),
        ("llama", {"attention_bias": True}),
        ("mistral", {"tie_word_embeddings": True, "head_dim": 8}),
    ],
)
def test_parameters_are_those_of_the_model(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    config = config_of(kind, **changes)
    config.save_pretrained(tmp_path)
    model = empty(config)
    for name in (tmp_path, tmp_path / "config.json"):
        shape = ModelShape.of(str(name))
        assert shape.parameters == sum(p.numel() for p in model.parameters())
        assert shape.layer_parameters == sum(p.numel() for p in model.model.layers[0].parameters())
    linears = [m for m in model.model.modules() if isinstance(m, torch.nn.Linear)]
    assert shape.lora_parameters(4) == sum(4 * (m.in_features + m.out_features) for m in linears)


def test_known_models_have_their_published_size() -> None:
    sizes = {name: ModelShape.of(f"Qwen/Qwen3-{name}").parameters for name in ("0.6B", "1.7B", "8B")}
    assert sizes == {"0.6B": 596_049_920, "1.7B": 1_720_574_976, "8B": 8_190_735_360}


def test_other_models_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(BadValue, match="model type 'mamba'; memory is computed for llama, mistral, qwen2, qwen3"):
        ModelShape.of(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "hidden_size": 8}))
    with pytest.raises(BadValue, match="no value for num_attention_heads"):
        ModelShape.of(str(tmp_path))


def size(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors if tensor is not None)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # on CPUs without bfloat16 instructions
def test_the_learner_allocates_what_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the parts that depend on the number of weights with the tensors of a real update in bfloat16."""
    config = config_of("qwen3", head_dim=8, tie_word_embeddings=True)
    auto: Any = transformers.AutoModelForCausalLM  # untyped
    model = auto.from_config(config, dtype=torch.bfloat16)
    settings = from_mapping(
        {"env": "game:GuessTheNumber-v0-easy", "model": "pretrained", "device": "cpu", "optimizer": "adamw"}
    )
    learner = Learner(Policy(model, None), settings)
    gradients: list[int] = []
    copies: list[int] = []
    accumulate, create = Optimizer.accumulate, TrustRegion.__init__

    def watch_gradients(self: Optimizer) -> None:
        gradients.append(size(p.grad for p in model.parameters()))
        accumulate(self)

    def watch_copies(self: TrustRegion, *args: Any, **options: Any) -> None:
        create(self, *args, **options)
        copies.append(size(self._start))

    monkeypatch.setattr(Optimizer, "accumulate", watch_gradients)
    monkeypatch.setattr(TrustRegion, "__init__", watch_copies)
    assert reinforcement_step(learner, batch(8), 0)["updates"]
    masters = learner.optimizer.parameters
    states = [state for part in learner.optimizer.parts for state in part.state.values()]
    measured = {
        "weights": size(model.parameters()),
        "float32 copies": size(masters),
        "copies for --kl-backtrack": max(copies),
        "gradients": size(p.grad for p in masters),
        "optimizer": size(state[name] for state in states for name in ("exp_avg", "exp_avg_sq")),
    }
    shape = ModelShape.from_config("small", config.to_dict())
    computed = learning_memory(shape, Machine(gpus=1, memory=80 * GB, tokens=512)).parts
    assert {name: computed[name] for name in measured} == measured
    estimated, _ = run_memory(settings, model, shape.parameters, 512, None)  # palestra train --dry-run
    assert {name: estimated[name] for name in measured} == measured
    assert max(gradients) == 2 * shape.parameters
    for memory in (80 * GB, None):  # the KV cache is limited to a part of the free memory
        _, sampling = run_memory(settings, model, shape.parameters, 10**8, memory)
        free = (memory or main_memory()) - sum(sampling.values()) + sampling["KV cache"]
        assert 0 < sampling["KV cache"] < free
    _, sampling = run_memory(settings, model, shape.parameters, 1, 80 * GB)
    per_token = 2 * model.dtype.itemsize * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    assert sampling["KV cache"] == settings.sampling.episodes * per_token


# Peaks on an H200 with 150 GB, measured with benchmarks/gpu_learner.py; the table in docs/training.md lists the steps.
@pytest.mark.parametrize(
    ("model", "tokens", "copies", "measured"),
    [
        ("0.6B", 2048, True, 63.5),  # --sections ragged, packed
        ("1.7B", 2048, True, 109.2),  # --sections step; conversations of equal length, which need a little less
        ("1.7B", 32_768, True, 109.2),
        ("4B", 8192, False, 83.0),  # --sections memory; steps could not be scaled back yet, so there were no copies
    ],
)
def test_measured_steps(model: str, tokens: int, copies: bool, measured: float) -> None:
    update = learning_memory(ModelShape.of(f"Qwen/Qwen3-{model}"), Machine(gpus=1, memory=150 * GB, tokens=tokens))
    assert update.recomputes is (model == "4B")
    computed = sum(update.parts.values()) - (0 if copies else update.parts["copies for --kl-backtrack"])
    assert computed == pytest.approx(measured * GB, rel=0.05)


@pytest.mark.parametrize(
    ("model", "gpus", "expected"),
    [
        ("0.6B", 1, (1, 0, 0, False)),
        ("4B", 1, (1, 0, 0, True)),  # 22 bytes per weight exceed one GPU of 80 GB
        ("14B", 1, (1, 0, 0, True)),
        ("14B", 2, (1, 1, 16, False)),
        ("8B", 8, (4, 4, 0, False)),
    ],
)
def test_plans_fit(model: str, gpus: int, expected: tuple[int, int, int, bool]) -> None:
    machine = Machine(gpus=gpus, memory=80 * GB, tokens=4096)
    plan = best_plan(ModelShape.of(f"Qwen/Qwen3-{model}"), machine)
    assert plan is not None
    assert (plan.learners, plan.servers, plan.lora_rank, plan.offload) == expected
    assert sum(plan.learning.values()) <= machine.usable
    assert plan.learners + plan.servers * plan.gpus_per_server == gpus
    cache = plan.conversations // (plan.servers or plan.learners) * plan.shape.cache_per_token * 4096
    assert cache + sum(plan.sampling.values()) <= machine.memory


def test_nothing_fits_on_a_small_gpu() -> None:
    shape = ModelShape.of("Qwen/Qwen3-32B")
    assert best_plan(shape, Machine(gpus=1, memory=24 * GB, tokens=4096)) is None
    with pytest.raises(BadValue, match="at least 1, got 0"):
        next(plans(shape, Machine(gpus=0, memory=24 * GB, tokens=4096)))


def test_longer_conversations_need_more_memory() -> None:
    shape = ModelShape.of("Qwen/Qwen3-1.7B")
    short, long = (best_plan(shape, Machine(gpus=1, memory=140 * GB, tokens=n)) for n in (4096, 32_768))
    assert short is not None
    assert long is not None
    assert long.conversations < short.conversations
    assert "--token-budget 32768" in long.command
    assert "--token-budget" not in short.command


def test_micro_batches_are_large_only_if_no_activations_are_recomputed() -> None:
    shape = ModelShape.of("Qwen/Qwen3-0.6B")
    plans_by_memory = {size: best_plan(shape, Machine(gpus=1, memory=size * GB, tokens=20_000)) for size in (141, 60)}
    large, small = plans_by_memory[141], plans_by_memory[60]
    assert large is not None
    assert small is not None
    assert (large.micro_batch, large.recomputes, small.micro_batch) == (32_768, False, 16_384)
    assert "--token-budget" not in large.flags()
    assert small.flags()[small.flags().index("--token-budget") + 1] == "20000"

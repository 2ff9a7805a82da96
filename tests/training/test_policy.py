"""Test that learner and engine compute equal log-probabilities (plain, LoRA, bfloat16), and test checkpoints."""

from __future__ import annotations

import asyncio
import copy
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from palestra.engines import Sampling, registry
from palestra.engines.default_model import default_model
from palestra.engines.local.engine import LocalEngine
from palestra.errors import BadValue, StoreFailed
from palestra.folders import recover_folder
from palestra.rollout.samples import TrainingSample
from palestra.training import checkpoint, memory
from palestra.training.learner import Learner
from palestra.training.optim import Optimizer
from palestra.training.policy import Policy, load_policy, weight_dtype
from palestra.training.step import reinforcement_step
from tests.engines.policy_double import CopyEngine
from tests.training.helpers import batch, config_of, learner_of

torch.set_num_threads(1)

LORA: dict[str, Any] = {"model": "default:0.1M", "lora_rank": 4, "lr": 1e-2}


def lora_learner(**values: Any) -> Learner:
    """Return a learner with LoRA weights that are not zero."""
    config = config_of(**{**LORA, **values})
    learner = Learner(load_policy(config), config)
    reinforcement_step(learner, batch(1), 0)
    learner.policy.update_sampler()
    return learner


def sampled_and_scored(policy: Policy) -> tuple[list[float], list[float], str]:
    async def sample() -> tuple[Any, str]:
        async with LocalEngine(policy.sampler, tokenizer=policy.tokenizer) as engine:
            completion = await engine.generate(list(range(40, 60)), Sampling(max_tokens=12, seed=1, temperature=1.0))
            return completion, engine.runner

    completion, decoder = asyncio.run(sample())
    ids = [*completion.prompt_ids, *completion.ids]
    count = len(completion.ids)
    scored_sample = TrainingSample(
        ids=ids,
        mask=[0] * (len(ids) - count) + [1] * count,
        logprobs=[0.0] * len(ids),
        turn_index=[-1] * (len(ids) - count) + [0] * count,
    )
    config = config_of()
    (micro,) = Learner(policy, config).micro_batches([scored_sample])
    with torch.no_grad():
        scored = policy.score(micro).logprobs[0, -count:].tolist()
    return completion.logprobs, scored, decoder


def test_the_engine_samples_from_the_model_with_lora() -> None:
    policy = lora_learner().policy
    sampled, scored, decoder = sampled_and_scored(policy)
    assert decoder == "native"
    assert sampled == pytest.approx(scored, abs=1e-4)
    plain, _ = default_model("0.1M", seed=0)
    without = Policy(plain, policy.tokenizer)
    assert sampled_and_scored(without)[1] != pytest.approx(scored, abs=1e-3)


@torch.no_grad()
def _logits(model: Any) -> torch.Tensor:
    """Return the logits for a text, computed in float64 so that only the rounding of the weights matters."""
    logits: torch.Tensor = copy.deepcopy(model).double()(input_ids=torch.arange(40, 80)[None]).logits
    return logits


@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
def test_small_lora_updates_reach_the_sampler_in_bfloat16(separate: bool) -> None:
    """Change the adapters by less than the spacing of the bfloat16 weights, and compare the effect on the logits."""
    policy = load_policy(config_of(**{**LORA, "dtype": "bfloat16", "asynchronous": separate}))
    assert (policy.sampler is policy.model) != separate
    before = _logits(policy.model)
    with torch.no_grad():
        for name, p in policy.model.named_parameters():
            if ".lora_B" in name:
                p.normal_(std=1e-5, generator=torch.Generator().manual_seed(len(name)))
    policy.update_sampler()
    effect, reached = _logits(policy.model) - before, _logits(policy.sampler) - before
    assert ((effect * reached).sum() / (effect**2).sum()).item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # on CPUs without bfloat16 instructions
def test_the_engine_samples_from_a_bfloat16_model_with_lora() -> None:
    policy = lora_learner(dtype="bfloat16").policy
    sampled, scored, decoder = sampled_and_scored(policy)
    assert decoder == "native"
    assert sampled == pytest.approx(scored, abs=0.1)


def test_an_engine_without_lora_support_samples_from_merged_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.ENGINES, "registered", {"copy": CopyEngine})
    policy = lora_learner(engine="copy").policy
    sampled, scored, _ = sampled_and_scored(policy)
    assert not any(".lora_" in name for name, _ in policy.sampler.named_parameters())
    assert sampled == pytest.approx(scored, abs=1e-4)


def test_only_lora_weights_change() -> None:
    learner = lora_learner()
    base, _ = default_model("0.1M", seed=0)
    known = dict(base.named_parameters())
    trained = 0
    for name, p in learner.policy.model.named_parameters():
        if ".lora_" in name:
            assert p.requires_grad
            trained += p.numel()
        else:
            assert torch.equal(p, known[name.replace(".base_layer.", ".")])
    assert 0 < trained < sum(p.numel() for p in known.values())
    with pytest.raises(BadValue, match="q_proj"):
        load_policy(config_of(**{**LORA, "lora_targets": "nothing_like_it"}))


def test_a_lora_checkpoint_is_a_complete_model_and_resumes(tmp_path: Path) -> None:
    learner = lora_learner()
    checkpoint.save(learner, tmp_path / "step-1", {"step": 1})
    assert (tmp_path / "step-1" / "adapter" / "adapter_config.json").exists()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "step-1")
    weights = learner.policy.weights()
    assert weights.keys() == dict(merged.named_parameters()).keys()
    for name, p in merged.named_parameters():
        assert torch.equal(p, weights[name])
    prompt = torch.arange(40, 60)[None]
    with torch.no_grad():
        expected = learner.policy.model(input_ids=prompt).logits
        assert torch.allclose(merged(input_ids=prompt).logits, expected, atol=1e-4)

    config = learner.config
    again = Learner(load_policy(config, str(tmp_path / "step-1")), config)
    assert checkpoint.load_state(again, tmp_path / "step-1") == {"step": 1}
    one, other = (reinforcement_step(which, batch(2), 1) for which in (learner, again))
    assert one == other
    for (name, p), (_, q) in zip(learner.policy.named_parameters(), again.policy.named_parameters(), strict=True):
        assert torch.equal(p, q), name


def test_lora_on_chosen_layers() -> None:
    policy = load_policy(config_of(**{**LORA, "lora_targets": "q_proj, v_proj"}))
    adapted = {name.split(".")[-4] for name, _ in policy.model.named_parameters() if ".lora_A" in name}
    assert adapted == {"q_proj", "v_proj"}


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # on CPUs without bfloat16 instructions
def test_small_steps_add_up_in_bfloat16() -> None:
    """Check that updates of 1e-4, each too small to change a bfloat16 weight of 0.5, accumulate."""
    layer = torch.nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        layer.weight.fill_(0.5)
    optimizer = Optimizer("adamw", layer, None, weight_decay=0.0)
    optimizer.set_lr(1e-4, 0.0)
    for _ in range(200):
        optimizer.zero_grad()
        for _ in range(3):  # micro-batches
            layer(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
            optimizer.accumulate()
        optimizer.step()
    assert layer.weight.dtype == torch.bfloat16
    assert layer.weight.float().mean().item() == pytest.approx(0.5 - 200 * 1e-4, rel=0.01)
    again = Optimizer("adamw", layer, None, weight_decay=0.0)
    again.load_state_dict(optimizer.state_dict())
    assert torch.equal(again.parameters[0], optimizer.parameters[0])


def test_bfloat16_is_trained_with_float32_master_weights() -> None:
    config = config_of(model="default:0.1M", dtype="bfloat16", lr=1e-3)
    learner = Learner(load_policy(config), config)
    assert learner.policy.model.dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in learner.optimizer.parameters)
    metrics = reinforcement_step(learner, batch(1, 3), 0)
    assert metrics["grad_norm"] > 0
    pairs = list(zip(learner.policy.model.parameters(), learner.optimizer.model_parameters, strict=True))
    assert all(torch.equal(p, master.to(torch.bfloat16)) for p, master in pairs)


def test_the_default_data_type_depends_on_the_model_and_the_device() -> None:
    untrained, pretrained = config_of(model="default:1M"), config_of(model="Qwen/Qwen3-1.7B")
    chosen = [weight_dtype(config, device) for config in (untrained, pretrained) for device in ("cpu", "cuda")]
    assert chosen == ["float32", "float32", "float32", "bfloat16"]
    assert weight_dtype(config_of(model="Qwen/Qwen3-1.7B", dtype="float32"), "cuda") == "float32"
    assert weight_dtype(config_of(model="default:1M", dtype="bfloat16"), "cpu") == "bfloat16"


def test_gradient_checkpointing_saves_memory_and_is_chosen_by_size() -> None:
    small, _ = default_model("0.1M")
    cpu = torch.device("cpu")
    assert not memory.should_recompute(small, 16384, device=cpu)
    assert memory.should_recompute(small, 1 << 22, device=cpu)

    def saved_bytes(recompute: str) -> int:
        learner = learner_of(gradient_checkpointing=recompute)
        (micro,) = learner.micro_batches([TrainingSample.of_prompt([1] * 500)])
        total = 0

        def note(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            learner.policy.score(micro)
        return total

    assert saved_bytes("on") < 0.5 * saved_bytes("off")
    assert saved_bytes("auto") == saved_bytes("off")


def test_gradient_checkpointing_of_a_copy_uses_its_layers() -> None:
    """Check that the layers of a copied model, such as the reference model, do not call the original model's layers."""
    learner = learner_of(gradient_checkpointing="on")
    reference = learner.policy.frozen()
    (micro,) = learner.micro_batches([TrainingSample.of_prompt([5] * 20)])
    body = reference.model.model
    before = reference._hidden(micro, body).clone()
    with torch.no_grad():
        for p in learner.policy.parameters():
            p.zero_()
    assert torch.equal(reference._hidden(micro, body), before)


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    learner = learner_of(lr=1e-2)
    folder = tmp_path / "last"
    checkpoint.save(learner, folder, {"step": 1})
    weights = (folder / "model.safetensors").read_bytes()
    reinforcement_step(learner, batch(1), 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # larger writes fail, as on a full disk
    try:
        with pytest.raises(StoreFailed, match="The previous checkpoint is intact"):
            checkpoint.save(learner, folder, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (folder / "model.safetensors").read_bytes() == weights
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert checkpoint.load_state(learner, folder) == {"step": 1}


def test_a_kill_between_the_two_renames_is_repaired(tmp_path: Path) -> None:
    learner = learner_of()
    checkpoint.save_model(learner, tmp_path / "best")
    (tmp_path / "best").rename(tmp_path / ".best.old")
    recover_folder(tmp_path / "best")
    assert (tmp_path / "best" / "config.json").exists()
    assert not (tmp_path / ".best.old").exists()


def test_the_critic_and_its_statistics_are_saved(tmp_path: Path) -> None:
    one, other = learner_of(algorithm="ppo_token"), learner_of(algorithm="ppo_token")
    reinforcement_step(one, batch(1), 0)
    checkpoint.save(one, tmp_path / "step-1", {"step": 1})
    other.policy.model.load_state_dict(one.policy.model.state_dict())
    checkpoint.load_state(other, tmp_path / "step-1")
    assert reinforcement_step(one, batch(2), 1) == reinforcement_step(other, batch(2), 1)
    pairs = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)


def test_only_the_last_k_checkpoints_are_kept(tmp_path: Path) -> None:
    learner = learner_of()
    for step in (2, 10, 9):
        checkpoint.save(learner, tmp_path / "checkpoints" / f"step-{step}", {"step": step})
    checkpoint.prune(tmp_path, 2)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["step-9", "step-10"]

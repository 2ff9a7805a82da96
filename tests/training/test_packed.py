"""Test the forward pass over packed rows and the log-probs in blocks, compared with the model and plain formulas."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import transformers
from torch import Tensor, nn

from palestra.engines.default_model import default_model
from palestra.rollout.samples import TrainingSample, to_batch
from palestra.rollout.types import Trajectory
from palestra.training import batch as micro
from palestra.training import learner, memory, packed_attention, packed_decoder, token_logprobs
from palestra.training.batch import LONG_SAMPLES, micro_batches
from palestra.training.fused_ops import ops_for
from palestra.training.optim import Optimizer
from palestra.training.policy import Policy
from palestra.training.step import reinforcement_step
from palestra.training.token_logprobs import Scaling
from tests.training.helpers import batch, config_of, gradient, learner_of

torch.set_num_threads(1)
CPU = torch.device("cpu")
SIZES = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 50, "attn_implementation": "sdpa",
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}},
    "Mistral": {"sliding_window": 5},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "Qwen3": {"attention_bias": True},
    "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": True,
                 "mlp_only_layers": [1]},
    "Gemma3": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 6},
}  # fmt: skip


def model_of(family: str) -> Any:
    torch.manual_seed(0)
    kind = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **FAMILIES[family]})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def samples_of(lengths: list[int], prefix: int) -> list[TrainingSample]:
    rng = Random(1)
    start = [rng.randrange(50) for _ in range(prefix)]
    samples = []
    for length in lengths:
        ids = [*start, *(rng.randrange(50) for _ in range(length))]
        mask = [0] * (prefix + 1) + [1] * (length - 1)
        samples.append(TrainingSample(ids=ids, mask=mask, logprobs=[0.0] * len(ids), turn_index=mask))
    return samples


@pytest.mark.parametrize("prefix", [0, 60])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_and_gradients_equal_those_of_the_model(
    family: str, prefix: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "MIN_STEP", 4)
    model = model_of(family)
    assert packed_decoder.unsupported_reason(model) is None
    memory.patch_layers(model)
    samples = samples_of([3, 17, 9, 9, 12, 30], prefix)
    (micro,) = micro_batches(samples, 4096, CPU, share_prefix=True, layout="flat")
    assert micro.shared == prefix
    hidden = packed_decoder.hidden_states(micro, model.model, ops_for(model))[0]
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))
    torch.autograd.backward((hidden * weights).sum())
    actual = [p.grad.clone() for p in model.model.parameters()]
    model.zero_grad()
    expected = torch.cat(
        [model.model(input_ids=torch.tensor([s.ids])).last_hidden_state[0, prefix:] for s in micro.samples]
    )
    torch.autograd.backward((expected * weights).sum())
    assert torch.allclose(hidden, expected, atol=1e-4)
    for got, p in zip(actual, model.model.parameters(), strict=True):
        assert (got - p.grad).norm() <= 1e-4 * p.grad.norm()


@pytest.mark.parametrize("shared", [0, 7])
def test_attention_over_groups_of_documents_equals_attention_with_a_mask(
    shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "MIN_STEP", 2)
    monkeypatch.setattr(packed_attention, "CUDNN_LENGTH", 16)
    lengths = [5, 40, 1, 38, 37, 3, 36, 20, 1]
    layout = packed_attention.plan(lengths, shared, CPU)
    assert len(layout.groups) > 3
    assert all(documents & (documents - 1) == 0 for documents, length, _ in layout.groups if length >= 16)
    tokens = shared + sum(lengths)
    document = torch.tensor([-1] * shared + [i for i, length in enumerate(lengths) for _ in range(length)])
    position = torch.arange(tokens)
    visible = (position[:, None] >= position) & ((document[:, None] == document) | (document == -1))
    q, k, v = (torch.randn(tokens, heads, 4, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2))

    def masked() -> Tensor:
        repeated = (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
        queries, keys, values = (x.transpose(0, 1)[None] for x in repeated)
        out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible, scale=0.5)
        return out[0].transpose(0, 1).flatten(1)

    results = []
    for output in (masked(), packed_attention.attend(q, k, v, layout, window=None, scale=0.5)):
        weights = torch.arange(output.numel(), dtype=torch.float64).view_as(output).sin()
        results.append((output, *torch.autograd.grad((output * weights).sum(), (q, k, v))))
    for expected, actual in zip(*results, strict=True):
        assert torch.allclose(expected, actual, rtol=1e-5, atol=1e-6)


def test_short_documents_share_a_group() -> None:
    assert packed_attention.plan([20, 3, 30, 11] * 9, 0, CPU).groups == [(36, 32, 0)]
    layout = packed_attention.plan(list(range(1, 1000)), 0, CPU)
    assert len(layout.groups) < 20
    assert layout.index is not None
    assert len(layout.index) < 1.2 * len(layout.inverse)


def test_equally_long_documents_are_not_copied() -> None:
    assert packed_attention.plan([300] * 4, 0, CPU).index is None
    assert packed_attention.plan([2048] * 4, 0, CPU).groups == [(4, 2048, 0)]
    assert packed_attention.plan([2047], 0, CPU).groups == [(1, 2048, 0)], "one of few shapes"


@pytest.mark.parametrize("how", [{"token_budget": 90}, {"gradient_checkpointing": "on", "algorithm": "ppo_token"}])
def test_a_flat_row_has_the_loss_and_gradient_of_padded_rows(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trajectories = batch(1, 6, prompt=70, split_at=2)

    def learned(trajectories: list[Trajectory], **values: Any) -> tuple[float, Tensor]:
        learner = learner_of(entropy=0.1, **values)
        loss = reinforcement_step(learner, trajectories, 0)["loss"]
        return loss, gradient(learner)

    loss, expected = learned(trajectories, algorithm=how.get("algorithm", "rebn"))
    monkeypatch.setattr(Policy, "layout", lambda *_: "flat")  # used on a GPU only
    flat_loss, actual = learned(trajectories, **how)
    assert flat_loss == pytest.approx(loss, rel=1e-4)
    assert (actual - expected).norm() <= 1e-4 * expected.norm()


def test_rows_are_packed_on_a_cpu_if_requested_or_if_samples_are_long() -> None:
    model, tokenizer = default_model("0.1M")
    policy = Policy(model, tokenizer)
    assert policy.unpackable is None
    assert [policy.layout(packing) for packing in (None, True, False)] == ["padded", "rows", "padded"]
    prefix = [1] * 5000
    short, long = (
        [TrainingSample.of_prompt([*prefix, 2, *[3] * (tokens - 1)]), TrainingSample.of_prompt([*prefix, 4])]
        for tokens in (2 * LONG_SAMPLES["cpu"] - 4, 2 * LONG_SAMPLES["cpu"] - 3)  # `of_prompt` adds a token
    )
    assert [policy.layout(None, samples) for samples in ([], short, long)] == ["padded", "padded", "flat"]
    assert policy.layout(False, long) == "padded"
    assert [micro.are_long(short, torch.device(device)) for device in ("cpu", "cuda", "mps")] == [False, True, False]
    policy.unpackable = "unsupported"
    assert policy.layout(None, long) == "padded"


def test_long_samples_are_trained_in_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories = batch(1, 4, prompt=70)

    def trained(limit: int) -> tuple[set[micro.Layout], Tensor]:
        monkeypatch.setattr(micro, "LONG_SAMPLES", {"cpu": limit})
        learner = learner_of()
        layouts = {each.layout for each in learner.micro_batches(to_batch(trajectories))}
        reinforcement_step(learner, trajectories, 0)
        return layouts, gradient(learner)

    (padded, expected), (flat, actual) = trained(10_000), trained(1)
    assert (padded, flat) == ({"padded"}, {"flat"})
    assert (actual - expected).norm() <= 1e-4 * expected.norm()


def test_a_large_model_that_cannot_be_packed_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library: Any = transformers  # its arguments are typed more narrowly than SIZES
    model = library.GemmaForCausalLM(library.GemmaConfig(**SIZES))
    monkeypatch.setattr(learner, "is_large", lambda _: True)  # only models on a GPU are large
    learner.Learner(Policy(model, None), config_of())
    (message,) = [record.getMessage() for record in caplog.records]
    assert "GemmaForCausalLM is trained in padded rows" in message


def test_default_size_of_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = default_model("0.1M")
    policy = Policy(model, tokenizer)
    assert policy.default_token_budget("padded") == 16_384
    assert policy.default_token_budget("flat") == 32_768
    monkeypatch.setattr(memory, "CPU_LIMIT", memory.activation_bytes(model, 20_000, fused=True))
    assert policy.default_token_budget("flat") == 16_384, "its activations would have to be recomputed"


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("bias", [False, True])
def test_logprobs_and_entropies_in_blocks(cap: float | None, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = nn.Linear(8, 40, bias=bias).double()
    hidden = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    ids, weights = torch.randint(40, (11,)), torch.randn(2, 11, dtype=torch.float64)
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    results = []
    for block in (1 << 25, 40 * 3):  # all tokens at once, and three tokens per block
        monkeypatch.setattr(token_logprobs, "LOGITS_BLOCK", block)
        logprobs, entropies = token_logprobs.token_logprobs(
            head, hidden, ids, Scaling(0.7, cap), entropy=True, entropy_gradient=True
        )
        assert entropies is not None
        loss = (logprobs * weights[0] + entropies * weights[1]).sum()
        results.append((logprobs, entropies, *torch.autograd.grad(loss, (hidden, *head.parameters()))))
    for expected, actual in zip(*results, strict=True):
        assert torch.allclose(expected, actual, rtol=1e-6, atol=1e-8)


def test_blocks_store_no_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_logprobs, "LOGITS_BLOCK", 400)
    head = nn.Linear(8, 400, bias=False)
    hidden = torch.randn(50, 8, requires_grad=True)
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        token_logprobs.token_logprobs(
            head, hidden, torch.zeros(50, dtype=torch.long), Scaling(), entropy=True, entropy_gradient=False
        )
    assert max(sizes) == head.weight.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_that_an_update_will_allocate(dtype: torch.dtype) -> None:
    layer = nn.Linear(10, 10, bias=False).to(dtype)
    optimizer = Optimizer("adamw", layer, None, weight_decay=0.0)
    gradients = 400 if dtype == torch.float32 else 400 + 200
    assert optimizer.unallocated_bytes() == 800 + gradients
    layer.weight.grad = torch.ones_like(layer.weight)
    assert optimizer.unallocated_bytes() == 800 + gradients - layer.weight.grad.nbytes
    optimizer.accumulate()
    optimizer.step()
    assert optimizer.unallocated_bytes() == (0 if dtype == torch.float32 else 200)

"""Test the limits that keep a run stable: update size, KL limits, adaptive learning rate and entropy bonus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from palestra.algorithms.base import PolicyGradientConfig
from palestra.algorithms.episode import penalize_cut_replies
from palestra.rollout.samples import TrainingSample, to_batch
from palestra.rollout.types import Trajectory
from palestra.training import train
from palestra.training.adaptive import (
    MAX_ENTROPY_SCALE,
    MAX_FALL,
    MAX_RISE,
    MIN_KL_SCALE,
    SOLVED_KL_SCALE,
    AdaptiveState,
)
from palestra.training.batch import MicroBatch
from palestra.training.learner import Learner
from palestra.training.optim import MOMENTA, Optimizer
from palestra.training.precompute import precompute
from palestra.training.recipe import from_mapping
from palestra.training.step import clone_samples, reinforcement_step
from palestra.training.trust_region import MAX_UNSAMPLED, TrustRegion, max_unsampled, step_change
from tests.training.helpers import VOCABULARY, batch, learner_of

torch.set_num_threads(1)


def movement(layer: nn.Linear, optimizer: Optimizer, gradient: torch.Tensor) -> float:
    """Make an update with this gradient and return how far it moved the weights."""
    before = layer.weight.detach().clone()
    layer.weight.grad = gradient.clone()
    optimizer.step()
    return float((layer.weight.detach() - before).norm())


def new_layer(kind: str) -> tuple[nn.Linear, Optimizer]:
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, bias=False)
    optimizer = Optimizer(kind, layer, None, weight_decay=0.0)
    optimizer.set_lr(1e-2, 0.0)
    return layer, optimizer


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_zero_gradients_do_not_move_weights(kind: str) -> None:
    layer, optimizer = new_layer(kind)
    zero = torch.zeros_like(layer.weight)
    assert movement(layer, optimizer, zero) == 0.0
    usual = [movement(layer, optimizer, torch.randn_like(zero)) for _ in range(40)][-1]
    assert usual > 0
    rest = [movement(layer, optimizer, zero) for _ in range(200)]
    assert rest[-1] < 0.01 * usual, "the momentum fades"


def test_the_size_of_a_muon_update_follows_the_gradient() -> None:
    layer, optimizer = new_layer("muon")
    noise = [torch.randn_like(layer.weight) for _ in range(300)]
    usual = [movement(layer, optimizer, g) for g in noise[:100]]
    assert usual[0] < 0.1 * min(usual[60:]), "the first gradients are mostly noise"
    smaller = [movement(layer, optimizer, g / 100) for g in noise[100:200]]
    assert smaller[-1] < 0.1 * min(usual[60:]), "gradients of a hundredth of the usual size move the weights less"
    larger = [movement(layer, optimizer, g * 1e4) for g in noise[200:]]
    assert max(larger) < 1.5 * max(usual), "a large gradient moves the weights no further than usual"
    other, its_optimizer = new_layer("muon")
    assert [movement(other, its_optimizer, g * 1e-6) for g in noise[:100]] == pytest.approx(usual, rel=1e-3), (
        "only the size relative to earlier gradients counts, as with Adam"
    )


def row_movements(step: str) -> tuple[float, float]:
    """Return the mean movement of the embeddings of used and of unused tokens in five training steps."""
    learner = learner_of(optimizer="muon", lr=1e-3, temperature=0.8)
    embeddings = learner.policy.model.get_input_embeddings().weight
    with torch.no_grad():
        embeddings[VOCABULARY:] = -3 * embeddings[:VOCABULARY].mean(0)  # makes unused tokens unlikely
    before = embeddings.detach().clone()
    for i in range(5):
        trajectories = batch(i, 4)
        if step == "rl":
            reinforcement_step(learner, trajectories, i)
        else:
            weights = [[1.0] * len(t.turns) for t in trajectories]
            ignore = step == "cloning without small gradients"
            clone_samples(learner, to_batch(trajectories), weights, 1e-3, ignore_small_gradients=ignore)
    moved = (embeddings.detach() - before).norm(dim=1)
    return float(moved[:VOCABULARY].mean()), float(moved[VOCABULARY:].mean())


def test_embeddings_of_unused_tokens_hardly_move_in_rl() -> None:
    used, unused = row_movements("cloning")
    assert unused > 0.3 * used, "in a warm start, AdamW makes unused tokens less likely"
    used, unused = row_movements("cloning without small gradients")
    assert 0 < unused < 0.3 * used, "with the option, they move much less"
    used, unused = row_movements("rl")
    assert 0 < unused < 0.1 * used, "in RL, their gradient is mostly noise"


def test_a_reply_without_its_end_is_penalized() -> None:
    trajectories = batch(3, 6, rewards=[0.0] * 4)
    turn = trajectories[0].turns[0]
    call = replace(turn.action.calls[0], finish="length")
    cut = replace(turn, action=replace(turn.action, calls=(call,)))
    trajectories[0] = replace(trajectories[0], turns=(cut, *trajectories[0].turns[1:]))
    assert penalize_cut_replies(trajectories, 0.0) == trajectories
    penalized = penalize_cut_replies(trajectories, 0.1)
    assert penalized[0].rewards == [-0.1, *trajectories[0].rewards[1:]]
    assert penalized[1:] == trajectories[1:]
    learner = learner_of(lr=1e-2, temperature=0.8)
    (sample,) = to_batch(trajectories[:1])
    (micro,) = learner.micro_batches([sample])
    first = micro.turn_starts.nonzero(as_tuple=True)
    before = learner.policy.score(micro).logprobs[first][0].item()
    assert reinforcement_step(learner, trajectories, 0)["signal"] == 0, "all other rewards are equal"
    assert reinforcement_step(learner, penalized, 0)["signal"] == 1
    assert learner.policy.score(micro).logprobs[first][0].item() < before


def test_an_untrained_model_is_trained_to_end_its_replies(tmp_path: Path) -> None:
    settings = {"model": "default:0.1M", "warm_start": 0, "max_tokens": 64, "steps": 1, "episodes": 20, "threads": 1}
    game = {"env": "game:GuessTheNumber-v0-easy", "env_kwargs": {"max_turns": 1}, "eval_episodes": 1, "store": False}
    run = train(from_mapping({**settings, **game, "concurrency": 20, "out": str(tmp_path)}), log=lambda _: None)
    row = run.rows[-1]
    assert 0 < row["cut_replies"] < 1
    assert (row["success"], row["signal"]) == (0, 1), "the cut penalty is the only reward"


def kl(learner: Learner, trajectories: list[Trajectory]) -> float:
    """Return the KL from the initial model in these tests to the current one, over the sampled tokens."""
    (micro,) = learner.micro_batches(to_batch(trajectories))
    with torch.no_grad():
        now = learner.policy.score(micro).logprobs[micro.mask]
        then = learner_of(temperature=0.8).policy.score(micro).logprobs[micro.mask]
    ratio = now - then
    return float((ratio.exp() - 1 - ratio).mean())


# With a temperature other than 1, the policy recomputes old log-probs.
FAR: dict[str, Any] = {"lr": 2e-3, "temperature": 0.8}


@pytest.mark.parametrize("options", [{"minibatches": 1}, {"minibatches": 3}, {"optimizer": "muon", "minibatches": 2}])
def test_the_kl_after_the_last_update_is_within_the_limit(options: dict[str, Any]) -> None:
    trajectories = batch(5, 8)
    free = learner_of(**FAR, **options)
    assert "backtracked" not in reinforcement_step(free, trajectories, 0)
    limit = kl(free, trajectories) / 4
    held = learner_of(kl_backtrack=limit, **FAR, **options)
    metrics = reinforcement_step(held, trajectories, 0)
    assert metrics["backtracked"] == 1
    assert 0 < kl(held, trajectories) <= limit
    assert metrics["step_kl"] == pytest.approx(kl(held, trajectories), rel=1e-3)


@pytest.mark.parametrize(
    ("count", "tokens", "measured"), [(512, 24, 128), (512, 4, 256), (100, 2, 100), (1000, 1, 1000)]
)
def test_the_change_is_measured_on_enough_samples_and_tokens(
    count: int, tokens: int, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(temperature=0.8)
    chosen: list[int] = []

    def watch(samples: list[TrainingSample], _: object) -> list[MicroBatch]:
        chosen.append(len(samples))
        return []

    monkeypatch.setattr(learner, "micro_batches", watch)
    samples = [TrainingSample(ids=[0] * tokens, mask=[1] * tokens) for _ in range(count)]
    step_change(learner, samples, frozenset())
    assert chosen == [measured]


@pytest.mark.parametrize(("entropy", "on_policy"), [(1.0, True), (0.02, True), (0.0, True), (0.02, False)])
def test_a_step_that_moves_probability_to_tokens_that_were_not_sampled_is_scaled_back(
    entropy: float, on_policy: bool
) -> None:
    learner = learner_of(temperature=0.8)
    samples = to_batch(batch(5, 8))
    columns = precompute(learner, samples, corrected=False)
    sampled = {token for sample in samples for token, mask in zip(sample.ids, sample.mask, strict=True) if mask}
    other = next(token for token in range(VOCABULARY) if token not in sampled)
    region = TrustRegion(learner, target=0.0, limit=0.05, entropy=entropy, on_policy=on_policy)
    most = max_unsampled(entropy)
    assert step_change(learner, samples, columns) == pytest.approx((0.0, 0.0), abs=1e-5)
    model: Any = learner.policy.model
    row = model.get_output_embeddings().weight[other]
    with torch.no_grad():
        hidden = model.model(torch.tensor([samples[0].ids])).last_hidden_state.mean((0, 1))
        for _ in range(1000):
            if step_change(learner, samples, columns).unsampled >= 3 * most:
                break
            row += 0.1 * hidden
    large = step_change(learner, samples, columns)
    assert large.unsampled >= 3 * most
    assert large.kl < region.limit
    assert (region.finish(samples, columns) == large) is not on_policy
    assert region.backtracked is on_policy
    assert (step_change(learner, samples, columns).unsampled <= most) is on_policy


def test_an_almost_deterministic_policy_may_move_less_probability_to_other_tokens() -> None:
    assert max_unsampled(1.0) == MAX_UNSAMPLED
    assert max_unsampled(0.02) == pytest.approx(0.01)
    assert 0 < max_unsampled(0.0) == max_unsampled(0.001) < 0.007, "the change that ruined one episode in four"


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_a_rejected_update_leaves_the_weights_and_resets_the_momentum(kind: str) -> None:
    learner = learner_of(kl_backtrack=1e-30, optimizer=kind, **FAR)
    metrics = reinforcement_step(learner, batch(5, 8), 0)
    assert metrics["backtracked"] == 1
    initial = learner_of(**FAR).policy.model
    assert all(torch.equal(p, q) for p, q in zip(learner.policy.model.parameters(), initial.parameters(), strict=True))
    states = [state for part in learner.optimizer.parts for state in part.state.values()]
    assert states
    assert all(not state[name].any() for state in states for name in MOMENTA & state.keys())
    near = learner_of(kl_backtrack=100.0, optimizer=kind, **FAR)
    assert "backtracked" not in reinforcement_step(near, batch(5, 8), 0)
    assert kl(near, batch(5, 8)) > 0


def test_a_step_ends_before_an_update_beyond_the_target_kl() -> None:
    trajectories = batch(5, 8)
    options: dict[str, Any] = {**FAR, "minibatches": 4, "lr": 1e-3}
    free = learner_of(**options)
    assert reinforcement_step(free, trajectories, 0)["updates"] == 4
    stopped = learner_of(target_kl=1e-9, **options)
    assert reinforcement_step(stopped, trajectories, 0)["updates"] == 1


def test_the_learning_rate_follows_the_kl() -> None:
    rates = []
    for lr in (1e-6, 1e-2):
        learner = learner_of(lr=lr, lr_start=0.5, lr_schedule="adaptive", target_kl=1e-3, temperature=0.8)
        rates.append([reinforcement_step(learner, batch(5, 8), step)["lr"] for step in range(3)])
    low, high = rates
    assert low == pytest.approx([5e-7, 6.25e-7, 7.8125e-7])
    state = AdaptiveState(rate=0.9)
    state.observe_kl(0.0, 1e-3, updates=1, planned=1, rejected=False)
    assert state.rate == 1.0, "the rate never exceeds --lr"
    assert high[0] == 5e-3
    assert high[0] > high[1] > high[2]


def test_the_rate_changes_by_a_limited_factor_per_step() -> None:
    def after(value: float, **options: Any) -> float:
        state = AdaptiveState(rate=0.5)
        state.observe_kl(value, 0.03, **{"updates": 8, "planned": 8, "rejected": False, **options})
        return state.rate

    assert after(0.03) == pytest.approx(0.5)
    assert after(0.03 * 1.21) == pytest.approx(0.5 / 1.1)
    assert after(0.03 / 1.21) == pytest.approx(0.5 * 1.1)
    assert after(0.0) == pytest.approx(0.5 * MAX_RISE)
    assert after(9.0) == pytest.approx(0.5 / MAX_FALL)
    assert after(0.03, updates=4) == pytest.approx(0.5 / 2**0.5), "half of the updates reached the target"
    assert after(0.0, rejected=True) < 0.5
    assert after(0.0, updates=0) < 0.5


def test_the_kl_limits_shrink_with_the_entropy_and_with_the_failures() -> None:
    state = AdaptiveState(rate=1.0)
    assert state.kl_scale(0.1, 0.3) == 1.0, "the initial entropy is not yet known"
    state.observe_entropy(0.6, 0.3, PolicyGradientConfig())
    assert state.kl_scale(0.9, 1.0) == 1.0, "a policy that is still random does not lose its success in one step"
    assert state.kl_scale(0.3, 1.0) == pytest.approx(0.5)
    assert state.kl_scale(0.0, 0.0) == MIN_KL_SCALE
    assert state.kl_scale(0.0, 0.8) == pytest.approx(MIN_KL_SCALE)
    assert state.kl_scale(0.0, 0.9) == pytest.approx(MIN_KL_SCALE / 2)
    assert state.kl_scale(0.0, 1.0) == SOLVED_KL_SCALE


def test_a_step_of_a_deterministic_policy_is_limited_more_if_all_episodes_succeed() -> None:
    trajectories = batch(5, 8)
    free = learner_of(**FAR)
    reinforcement_step(free, trajectories, 0)
    limit = kl(free, trajectories) / MIN_KL_SCALE * 2

    def step(success: bool) -> dict[str, float]:
        learner = learner_of(kl_backtrack=limit, **FAR)
        learner.adaptive.start_entropy = 1e9
        return reinforcement_step(learner, [replace(t, success=success) for t in trajectories], 0)

    assert "backtracked" not in step(success=False)
    assert step(success=True)["backtracked"] == 1


def test_the_entropy_bonus_of_failed_episodes_grows_as_they_become_rare() -> None:
    state = AdaptiveState(rate=1.0)
    config = PolicyGradientConfig(entropy_failed=10.0)
    assert state.failed_factor(0.0, config) == 1.0
    assert state.failed_factor(0.75, config) == pytest.approx(4.0)
    assert state.failed_factor(0.98, config) == 10.0
    assert state.failed_factor(1.0, config) == 10.0
    assert state.failed_factor(0.98, PolicyGradientConfig()) == 1.0
    state.entropy_scale = 4.0
    assert state.failed_factor(0.98, config) == pytest.approx(2.5), "together, both factors are at most 10"
    state.entropy_scale = MAX_ENTROPY_SCALE
    assert state.failed_factor(0.98, config) == 1.0


def test_only_failed_episodes_have_a_larger_entropy_bonus() -> None:
    trajectories = [replace(t, success=i > 1) for i, t in enumerate(batch(5, 8))]

    def bonus(**options: Any) -> tuple[dict[str, float], float, float]:
        """Return a step's metrics, its entropy bonus, and the share of failed episodes in the mean entropy."""
        learner = learner_of(entropy=0.5, **options)
        (micro,) = learner.micro_batches(to_batch(trajectories))
        with torch.no_grad():
            entropy = learner.policy.score(micro, entropy=True).entropy
        assert entropy is not None
        failed, tokens = 0.0, 0
        for sample, row in zip(micro.samples, micro.read(entropy), strict=True):
            tokens += sample.sampled
            if not trajectories[sample.episode].success:
                failed += sum(number for number, sampled in zip(row, sample.mask, strict=True) if sampled)
        metrics = reinforcement_step(learner, trajectories, 0)
        return metrics, metrics["policy_loss"] - metrics["loss"], failed / tokens

    equal, plain, failed = bonus(entropy_failed=1.0)
    assert "entropy_coef_failed" not in equal
    assert plain == pytest.approx(0.5 * equal["entropy"], rel=1e-5)
    weighted, larger, _ = bonus(entropy_failed=10.0)
    assert weighted["entropy_coef_failed"] == pytest.approx(2.0), "two of eight episodes failed"
    assert larger == pytest.approx(plain + 0.5 * 3 * failed, rel=1e-5)


def test_the_entropy_bonus_grows_while_the_entropy_is_too_low_for_the_success_rate() -> None:
    state = AdaptiveState(rate=1.0)
    config = PolicyGradientConfig(entropy_floor=0.3)
    state.observe_entropy(0.6, 0.3, config)
    assert state.entropy_scale == 1.0
    for _ in range(20):
        state.observe_entropy(0.1, 0.3, config)  # the floor is 0.126
    assert state.entropy_scale == MAX_ENTROPY_SCALE
    for _ in range(20):
        state.observe_entropy(0.1, 0.9, config)  # a policy that wins may be almost deterministic
    assert state.entropy_scale == 1.0
    state.observe_entropy(0.0, 0.3, PolicyGradientConfig(entropy_floor=0.0))
    assert state.entropy_scale == 1.0

"""Test `--kl-unsolved`, which makes the actions of the model at the start of RL likely again in unsolved states."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from palestra.algorithms.base import PolicyGradientConfig
from palestra.algorithms.rebn import ReBN
from palestra.errors import BadValue
from palestra.rollout.samples import to_batch
from palestra.rollout.types import Trajectory
from palestra.training import train
from palestra.training.distributed import DistributedContext
from palestra.training.learner import Learner
from palestra.training.precompute import MIN_VISITS, assign_start_ids, precompute, unsolved_turns
from palestra.training.recipe import from_mapping
from palestra.training.reporting.metrics import read
from palestra.training.step import cloning_step, policy_gradients, reinforcement_step
from palestra.training.token_logprobs import Scaling, sample_tokens
from tests.training.helpers import batch, learner_of, trajectory

torch.set_num_threads(1)

COPIES = 5
ALONE = DistributedContext()


def episode(seed: int, *, success: bool, rewards: Sequence[float] = (0.0, 0.0, 0.0)) -> Trajectory:
    return replace(trajectory(Random(seed), turns=3, rewards=rewards), success=success)


def episodes() -> list[Trajectory]:
    """Return copies of an episode that failed, and of one that succeeded."""
    return [episode(1, success=False)] * COPIES + [episode(2, success=True, rewards=(0.0, 0.0, 1.0))] * COPIES


def kl_from_start(learner: Learner, trajectories: Sequence[Trajectory]) -> float:
    """Return KL(start || policy), averaged over the places of all sampled tokens."""
    assert learner.reference is not None
    total, count = 0.0, 0
    for micro_batch in learner.micro_batches(to_batch(trajectories)):
        row, column = micro_batch.targets
        start, policy = (logits(p.model, micro_batch.ids)[row, column - 1] for p in (learner.reference, learner.policy))
        total += float((start.exp() * (start - policy)).sum())
        count += len(row)
    return total / count


@torch.no_grad()
def logits(model: Any, ids: Tensor) -> Tensor:
    scores: Tensor = model(input_ids=ids).logits.float().log_softmax(-1)
    return scores


def deterministic(**options: Any) -> Learner:
    """Return a learner that only knows the actions of `episodes()`, and whose reference model is the earlier model."""
    learner = learner_of(lr=3e-3, packing=False, temperature=0.9, max_kl=0.0, **options)
    learner.reference = learner.policy.frozen()
    for _ in range(60):
        cloning_step(learner, episodes(), [[1.0] * len(t.turns) for t in episodes()], 3e-3)
    return learner


def unsolved(
    trajectories: Sequence[Trajectory], processes: DistributedContext = ALONE, *, solved: bool = True
) -> list[set[int]]:
    """Return the unsolved turns of each sample; with `solved`, another episode of the step succeeds."""
    if solved:
        return unsolved([*trajectories, episode(9, success=True)], processes, solved=False)[:-1]
    return [set(turns) for turns in unsolved_turns(to_batch(trajectories), trajectories, processes)]


def test_states_that_were_visited_often_and_never_led_to_success_are_unsolved() -> None:
    failed, solved = episode(1, success=False), episode(2, success=True)
    few = MIN_VISITS - 1
    assert unsolved([failed] * MIN_VISITS + [solved] * MIN_VISITS) == [{0, 1, 2}] * MIN_VISITS + [set()] * MIN_VISITS
    assert unsolved([failed] * few) == [set()] * few, "too few visits"
    assert unsolved([failed] * MIN_VISITS + [replace(failed, success=None)]) == [{0, 1, 2}] * (MIN_VISITS + 1)


def test_a_state_that_led_to_success_once_is_solved() -> None:
    failed = episode(1, success=False)
    first, second, _ = failed.turns
    (call,) = second.action.calls
    other = replace(second.action, calls=(replace(call, ids=[7, 7], logprobs=[-1.0, -1.0]),))
    success = replace(failed, turns=(first, replace(second, action=other)), success=True)
    assert unsolved([failed] * MIN_VISITS + [success]) == [{2}] * MIN_VISITS + [set()], "the third turn differs"


def test_states_with_partial_credit_are_not_unsolved() -> None:
    plain, credit = episode(1, success=False), episode(1, success=False, rewards=(0.0, 0.5, 0.0))
    assert plain.turns[2].action == credit.turns[2].action
    assert unsolved([plain] * MIN_VISITS + [credit] * MIN_VISITS) == [{2}] * (2 * MIN_VISITS)
    earlier = episode(1, success=False, rewards=(0.5, 0.0, 0.0))
    assert unsolved([plain] * MIN_VISITS + [earlier] * MIN_VISITS) == [{1, 2}] * (2 * MIN_VISITS)
    penalty = episode(1, success=False, rewards=(0.0, -0.1, 0.0))
    assert unsolved([plain] * MIN_VISITS + [penalty]) == [{0, 1, 2}] * (MIN_VISITS + 1)


def test_a_conversation_whose_start_was_removed_has_its_own_states() -> None:
    parts = replace(trajectory(Random(3), turns=3, rewards=(0.0, 0.0, 0.0), split_at=1), success=False)
    assert len(to_batch([parts])) == 2
    assert unsolved([parts] * MIN_VISITS) == [{0}, {1, 2}] * MIN_VISITS


def test_a_step_without_success_has_no_unsolved_states() -> None:
    failed = episode(1, success=False, rewards=(-1.0, -1.0, -1.0))
    assert unsolved([failed] * MIN_VISITS) == [{0, 1, 2}] * MIN_VISITS
    assert unsolved([failed] * MIN_VISITS, solved=False) == [set()] * MIN_VISITS


def test_states_are_compared_over_all_processes() -> None:
    failed, half = episode(1, success=False), MIN_VISITS // 2

    class Two(DistributedContext):
        def gather(self, value: Any) -> list[Any]:
            return [value, other]

    other: Any = (Counter[int](), set[int]())
    assert unsolved([failed] * half, Two()) == [set()] * half
    other = value_of([failed] * (MIN_VISITS - half))
    assert unsolved([failed] * half, Two()) == [{0, 1, 2}] * half
    other = value_of([replace(failed, success=True)])
    assert unsolved([failed] * MIN_VISITS, Two()) == [set()] * MIN_VISITS


def value_of(trajectories: Sequence[Trajectory]) -> Any:
    """Return what a process sends to the others."""
    sent: list[Any] = []

    class Sender(DistributedContext):
        def gather(self, value: Any) -> list[Any]:
            sent.append(value)
            return [value]

    unsolved(trajectories, Sender(), solved=False)
    return sent[0]


def test_a_negative_coefficient_is_refused() -> None:
    with pytest.raises(BadValue, match="kl_unsolved must be at least 0"):
        PolicyGradientConfig(kl_unsolved=-0.1)


def test_tokens_are_sampled_from_the_predicted_distribution() -> None:
    torch.manual_seed(0)
    head, hidden = nn.Linear(4, 5), torch.randn(1, 4)
    scaling = Scaling(temperature=1.5, cap=2.0)
    expected = ((head(hidden) / 2).tanh() * 2 / 1.5).softmax(-1)[0]
    ids = sample_tokens(head, hidden.expand(20_000, 4), scaling, torch.Generator().manual_seed(1))
    found = torch.bincount(ids, minlength=5) / 20_000
    assert found.tolist() == pytest.approx(expected.tolist(), abs=0.015)
    assert sample_tokens(head, hidden[:0], scaling, torch.Generator()).tolist() == []


@pytest.mark.parametrize("packing", [False, True])
def test_other_tokens_are_scored_like_the_sampled_ones(packing: bool) -> None:
    learner = learner_of(packing=packing, token_budget=100)
    samples = to_batch(batch(5, 8))
    for sample in samples:
        sample.start_ids = [i if n % 3 else -1 for n, i in enumerate(sample.ids)]
    for micro_batch in learner.micro_batches(samples):
        other_ids = micro_batch.column("start_ids")
        assert other_ids is not None
        scores = learner.policy.score(micro_batch, other_ids=other_ids)
        assert scores.other_logprobs is not None
        known = micro_batch.mask & (other_ids >= 0)
        torch.testing.assert_close(scores.other_logprobs[known], scores.logprobs[known])
        assert not scores.other_logprobs[~known].any()
        assert known.any()
    assert learner.policy.score(micro_batch).other_logprobs is None


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("prefix", [0, 80])
def test_only_unsolved_states_have_tokens_of_the_reference_model(packing: bool, prefix: int) -> None:
    learner = learner_of(reference=True, packing=packing)
    start = list(range(100, 100 + prefix))
    failed = replace(trajectory(Random(1), prompt=start, rewards=(0.0, 0.0, 0.0)), success=False)
    solved = replace(trajectory(Random(2), prompt=start, rewards=(0.0, 0.0, 1.0)), success=True)
    trajectories = [failed] * COPIES + [solved] * COPIES
    samples = to_batch(trajectories)
    found = []
    for seed in (1, 1, 2):
        assign_start_ids(learner, samples, trajectories, seed)
        for sample in samples:
            assert sample.start_ids is not None
            expected = [bool(m) and sample.episode < COPIES for m in sample.mask]
            assert [token >= 0 for token in sample.start_ids] == expected
        found.append([sample.start_ids for sample in samples])
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_the_gradient_is_that_of_the_kl_from_the_start() -> None:
    learner = learner_of(reference=True, packing=False, kl_unsolved=0.5)
    trajectories = episodes()
    samples = to_batch(trajectories)
    columns = precompute(learner, samples, corrected=False)
    for sample in samples:
        sample.advantages = [0.0] * len(sample)
    sums = [torch.zeros_like(parameter) for parameter in learner.policy.model.parameters()]
    draws = 100
    for seed in range(draws):
        assign_start_ids(learner, samples, trajectories, seed)
        policy_gradients(learner, samples, columns, entropy_coef=0.0)
        for total, parameter in zip(sums, learner.policy.model.parameters(), strict=True):
            total += parameter.grad
    learner.optimizer.zero_grad()
    kl, tokens = torch.zeros(()), sum(sample.sampled for sample in samples)
    for sample in samples[:COPIES]:
        ids = torch.tensor([sample.ids])
        places = torch.tensor(sample.mask).nonzero()[:, 0] - 1
        start = logits(learner.reference.model, ids)[0, places]  # type: ignore[union-attr]
        policy = learner.policy.model(input_ids=ids).logits[0, places].log_softmax(-1)
        kl = kl - (start.exp() * policy).sum()
    (0.5 * kl / tokens).backward()  # type: ignore[no-untyped-call]
    exact = torch.cat([p.grad.flatten() for p in learner.policy.model.parameters()])
    mean = torch.cat([total.flatten() for total in sums]) / draws
    assert float(torch.cosine_similarity(mean, exact, dim=0)) > 0.9
    assert float(mean.norm() / exact.norm()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_actions_that_are_no_longer_sampled_become_likely_again() -> None:
    """With an entropy bonus, they do not, because its gradient vanishes for actions without probability."""
    trajectories = episodes()
    remaining = {}
    for name, options in {"entropy": {"entropy": 0.1}, "kl": {"kl_unsolved": 0.1}}.items():
        learner = deterministic(**options)
        before = kl_from_start(learner, trajectories[:COPIES])
        samples = to_batch(trajectories)
        columns = precompute(learner, samples, corrected=False)
        for seed in range(10):
            for sample in samples:
                sample.advantages = [0.0] * len(sample)
            if name == "kl":
                assign_start_ids(learner, samples, trajectories, seed)
            policy_gradients(learner, samples, columns)
            learner.apply()
        remaining[name] = kl_from_start(learner, trajectories[:COPIES]) / before
    assert remaining["kl"] < 0.5 < 0.9 < remaining["entropy"]


def test_the_share_of_tokens_in_unsolved_states_is_reported() -> None:
    learner = learner_of(reference=True, kl_unsolved=0.1)
    samples = to_batch(episodes())
    share = sum(sample.sampled for sample in samples[:COPIES]) / sum(sample.sampled for sample in samples)
    assert reinforcement_step(learner, episodes(), 0)["unsolved"] == pytest.approx(share)
    assert "unsolved" not in reinforcement_step(learner_of(reference=True), episodes(), 0)


@pytest.mark.slow
def test_a_run_keeps_the_model_at_the_start_and_continues_with_it(tmp_path: Path) -> None:
    config = {
        "env": "game:GuessTheNumber-v0-easy",
        "model": "default:0.1M",
        "device": "cpu",
        "episodes": 64,
        "warm_start": 300,
        "eval_episodes": 4,
        "save_every": 1,
        "keep": 3,
        "steps": 3,
        "kl_unsolved": 0.1,
    }
    train(from_mapping({**config, "out": str(tmp_path / "whole")}))
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    for later in ("step-2", "step-3"):
        shutil.rmtree(tmp_path / "resumed" / "checkpoints" / later)
    train(from_mapping({**config, "out": str(tmp_path / "resumed")}))
    assert (tmp_path / "resumed" / "checkpoints" / "step-3").exists(), "it made the last two steps again"
    rows = {}
    for name in ("whole", "resumed"):
        assert (tmp_path / name / "start" / "config.json").exists()
        rows[name] = [row for row in read(tmp_path / name / "metrics.jsonl") if row["step"] >= 0]
    assert len(rows["whole"]) == 3
    assert any(row["unsolved"] > 0 for row in rows["whole"])
    assert "kl" not in rows["whole"][0], "the log-probs of the reference model are not needed"
    same = ("loss", "step_kl", "unsolved", "success")
    found, expected = ([[row[key] for key in same] for row in rows[name]] for name in ("resumed", "whole"))
    assert found == expected


class WithoutPenalty(ReBN):
    """An algorithm from before the option existed."""

    name = "without_penalty"

    @property
    def needs_reference(self) -> bool:
        return self.config.kl > 0


def test_an_algorithm_that_only_needs_the_start_for_a_penalty_has_it_for_this_option_as_well() -> None:
    settings = {"env": "game:GuessTheNumber-v0-easy", "algorithm": WithoutPenalty}
    assert from_mapping(settings).needs_reference
    assert not from_mapping({**settings, "kl_unsolved": 0.0}).needs_reference
    assert from_mapping({**settings, "kl_unsolved": 0.0, "kl": 0.1}).needs_reference

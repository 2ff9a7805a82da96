"""Test the settings, probes and metrics for an engine with its own copy of the weights."""

from __future__ import annotations

from dataclasses import replace
from math import expm1
from typing import Any

import pytest
import torch

from palestra.errors import BadValue
from palestra.training.recipe import from_mapping
from palestra.training.sampling_engine import PROBE_LENGTH, PROBES, learner_probes
from palestra.training.step import reinforcement_step
from tests.training.helpers import batch, learner_of
from tests.training.test_corrections import logprobs, on_policy


def test_importance_correction_is_on_by_default_with_vllm() -> None:
    def correction(**settings: Any) -> str:
        value: str = from_mapping({"env": "game:A-v0", **settings}).algorithm.config.is_correction
        return value

    assert correction() == "stale"
    assert correction(engine="vllm") == "always"
    assert correction(engine="vllm", algorithm="grpo", group_size=2) == "always"
    assert correction(engine="vllm", is_correction="stale") == "stale"
    assert correction(engine="vllm", temperature=0.0) == "stale"


def test_server_settings_need_the_vllm_engine() -> None:
    for settings in ({"engine_url": "http://a:1/v1"}, {"engine_gpus": "1"}, {"engine_servers": 2}):
        with pytest.raises(BadValue, match="select vLLM servers; add --engine vllm"):
            from_mapping({"env": "game:A-v0", **settings})
        from_mapping({"env": "game:A-v0", "engine": "vllm", **settings})


def test_probes_have_the_log_probabilities_at_temperature_one() -> None:
    learner = learner_of(temperature=0.5)
    probes = learner_probes(learner)
    assert [len(ids) for ids, _ in probes] == [PROBE_LENGTH] * PROBES
    for ids, scores in probes:
        with torch.no_grad():
            rows = learner.policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        wanted = rows[torch.arange(PROBE_LENGTH - 1), torch.tensor(ids[1:])]
        assert torch.allclose(torch.tensor(scores[1:]), wanted, atol=1e-4)
        assert scores[0] == 0
    assert learner.policy.temperature == 0.5


def test_mismatch_kl_is_reported_with_importance_correction() -> None:
    learner = learner_of(algorithm="rebn", is_correction="always", lr=0.0)
    trajectories = batch(7, version=3)
    exact = [on_policy(t, row) for t, row in zip(trajectories, logprobs(learner, trajectories), strict=True)]
    assert reinforcement_step(learner, exact, 0, version=3)["engine_kl"] == pytest.approx(0.0, abs=1e-6)
    shifted = [
        replace(
            t,
            turns=tuple(
                replace(
                    turn,
                    action=replace(
                        turn.action,
                        calls=tuple(
                            replace(call, logprobs=[x - 0.1 for x in call.logprobs]) for call in turn.action.calls
                        ),
                    ),
                )
                for turn in t.turns
            ),
        )
        for t in exact
    ]
    metrics = reinforcement_step(learner, shifted, 0, version=3)
    assert metrics["engine_kl"] == pytest.approx(expm1(0.1) - 0.1, rel=1e-3)
    assert "engine_kl" not in reinforcement_step(learner, shifted, 0, version=5)  # sampled with older weights

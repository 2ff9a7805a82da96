"""Test the interface between a trainer and the engine it samples from."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from palestra.engines import LocalEngine, PolicyEngine, Sampling
from palestra.errors import BadValue
from tests.engines.policy_double import CopyEngine
from tests.engines.tiny import error, qwen3

SHORT = Sampling(max_tokens=6, seed=1)


def nudge(model: Any, seed: int) -> None:
    """Change every weight a little, as an optimizer step would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("engine_class", [LocalEngine, CopyEngine])
def test_policy_engine_interface(engine_class: Callable[..., PolicyEngine]) -> None:
    learner = qwen3(seed=3)

    async def run() -> None:
        async with engine_class(learner, threads=1) as engine:
            for version in range(1, 4):
                async with engine.paused():
                    nudge(learner, version)
                    await engine.publish(None if engine.shares_weights else learner.state_dict(), version)
                assert engine.version == version
                reply = await engine.generate([1, 2, 3], SHORT, conversation="a")
                assert reply.version == version
                assert error(learner, reply) < 1e-4

    asyncio.run(run())


def test_published_tensors_are_copied_into_the_model() -> None:
    model, target = qwen3(seed=3), qwen3(seed=4)

    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            before = asyncio.create_task(engine.generate([1, 2, 3], Sampling(max_tokens=60)))
            await asyncio.sleep(0)
            await engine.publish(target.named_parameters(), 7)
            reply = await engine.generate([1, 2, 3], SHORT)
            assert (await before).version in (0, 7)
            assert reply.version == engine.version == 7
            assert error(target, reply) < 1e-4

    asyncio.run(run())


def test_publish_rejects_wrong_tensors_and_old_versions() -> None:
    model = qwen3(seed=3)
    before = copy.deepcopy(model.state_dict())

    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            with pytest.raises(BadValue, match="version must exceed the current version 0, got 0"):
                await engine.publish(None, 0)
            with pytest.raises(BadValue, match=r"no tensor named 'model.norm.wait'; did you mean 'model.norm.weight'"):
                await engine.publish({"model.norm.wait": torch.ones(32)}, 1)
            with pytest.raises(BadValue, match=r"must have shape \(32,\), got \(31,\)"):
                await engine.publish({"model.norm.weight": torch.ones(31)}, 1)
            assert engine.version == 0
            await engine.generate([1], SHORT)

    asyncio.run(run())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

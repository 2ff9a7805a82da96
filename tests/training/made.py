"""Small models and made-up trajectories for the tests of this room."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import torch

from palestra.engines.default_model import default_model
from palestra.rollout.types import Trajectory, Turn
from palestra.training.config import TrainConfig, from_mapping
from palestra.training.learner import Learner
from palestra.training.policy import CRITICS, Policy
from palestra.types import Action, Call

VOCABULARY = 300


@cache
def _model() -> tuple[Any, Any]:
    return default_model("0.1M", seed=3)


def config_of(**values: Any) -> TrainConfig:
    """One plain update a step, whatever the defaults of a run are."""
    given = {
        "env": "game:A-v0",
        "device": "cpu",
        "optimiser": "adamw",
        "epochs": 1,
        "minibatches": 1,
        "entropy": 0.0,
        "gamma": 1.0,
        "lr_warmup": 0,
        "max_grad_norm": 1e9,
        "kl_stop": 0.0,
    }
    return from_mapping({**given, **values})


def learner_of(reference: bool = False, **values: Any) -> Learner:
    """A learner of a fresh copy of the same small model."""
    config = config_of(**values)
    model, tokenizer = _model()
    torch.manual_seed(0)
    policy = Policy(
        copy.deepcopy(model),
        tokenizer,
        critic=config.algo in CRITICS,
        temperature=config.temperature,
        recompute=config.gradient_checkpointing,
    )
    if policy.critic is not None:
        for p in policy.critic.parameters():
            torch.nn.init.normal_(p, std=0.3)
    other = None
    if reference:
        other = policy.frozen()
        with torch.no_grad():
            for p in other.parameters():
                p.add_(torch.randn_like(p), alpha=0.02)
    return Learner(policy, config, other)


def trajectory(
    rng: Random,
    *,
    turns: int = 3,
    prompt: Sequence[int] = (),
    group: int = 0,
    env_id: str = "game:A",
    rewards: Sequence[float] | None = None,
    split_at: int | None = None,
    truncated: bool = False,
    version: int = 0,
) -> Trajectory:
    """An episode whose every prompt goes on from what was said, but for turn `split_at`."""
    seen = list(prompt) or _ids(rng, 1, 8)
    found = []
    for i in range(turns):
        if i == split_at:
            seen = _ids(rng, 2, 5)
        seen = seen + _ids(rng, 1, 5)
        said = _ids(rng, 1, 4)
        call = Call(
            prompt_ids=seen,
            ids=said,
            logprobs=[-rng.uniform(4.5, 6.5) for _ in said],
            finish="stop",
            version=version,
        )
        reward = rng.uniform(-1, 1) if rewards is None else rewards[i]
        last = i == turns - 1
        found.append(
            Turn(
                observation="",
                action=Action(text="", calls=(call,)),
                reward=reward,
                terminated=last and not truncated,
                truncated=last and truncated,
                info={},
                agent_seconds=0.0,
                env_seconds=0.0,
            )
        )
        seen = seen + said
    return Trajectory(
        env_id=env_id,
        kwargs={},
        seed=group,
        group=group,
        member=0,
        turns=tuple(found),
        final_observation="",
        success=False,
        final_prompt=tuple(seen + _ids(rng, 1, 3)) if truncated else (),
    )


def batch(seed: int, count: int = 6, *, prompt: int = 0, **options: Any) -> list[Trajectory]:
    """Ragged episodes, two of each task; with `prompt`, all begin with that many of the same tokens."""
    rng = Random(seed)
    start = _ids(rng, prompt, prompt) if prompt else ()
    return [trajectory(rng, turns=rng.randint(1, 4), prompt=start, group=i // 2, **options) for i in range(count)]


def gradient(learner: Learner) -> torch.Tensor:
    """Of the last update, as one vector."""
    return torch.cat(
        [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in learner.policy.parameters()]
    )


def _ids(rng: Random, least: int, most: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(least, most))]

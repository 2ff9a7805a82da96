"""Small models and synthetic trajectories for the training tests."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import torch

from palestra.algorithms import options_of
from palestra.engines.default_model import default_model
from palestra.rollout.types import Trajectory, Turn
from palestra.training.config import TrainConfig
from palestra.training.critic import critic_body
from palestra.training.learner import Learner
from palestra.training.policy import Policy
from palestra.training.recipe import FLAT, from_mapping
from palestra.types import Action, Call

VOCABULARY = 300


@cache
def _model() -> tuple[Any, Any]:
    return default_model("0.1M", seed=3)


def config_of(**values: Any) -> TrainConfig:
    """Return a config with one plain update per step. Options that its algorithm does not have are ignored."""
    settings = {
        "env": "game:A-v0",
        "device": "cpu",
        "optimizer": "adamw",
        "epochs": 1,
        "minibatches": 1,
        "entropy": 0.0,
        "gamma": 1.0,
        "gamma_dense": 1.0,
        "lr_warmup": 0,
        "lr_schedule": "linear",
        "max_grad_norm": 1e9,
        "target_kl": 0.0,
        "kl_backtrack": 0.0,
        "kl_unsolved": 0.0,
        "normalize_per_turn": False,
    }
    options = options_of(str(values.get("algorithm", "rebn")))
    settings = {name: value for name, value in settings.items() if name in FLAT or name in options}
    return from_mapping({**settings, **values})


def learner_of(reference: bool = False, **values: Any) -> Learner:
    """Return a learner with a fresh copy of the same small model."""
    config = config_of(**values)
    model, tokenizer = _model()
    torch.manual_seed(0)
    model = copy.deepcopy(model)
    policy = Policy(
        model,
        tokenizer,
        critic=config.algorithm.needs_critic,
        critic_body=critic_body(model, getattr(config.algorithm, "critic", "head"), rank=4, seed=0),
        temperature=config.sampling.temperature,
        recompute=config.model.gradient_checkpointing,
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
    """Return an episode in which every prompt extends the previous tokens, except at turn `split_at`."""
    seen = list(prompt) or _ids(rng, 1, 8)
    played = []
    for i in range(turns):
        if i == split_at:
            seen = _ids(rng, 2, 5)
        seen = seen + _ids(rng, 1, 5)
        reply = _ids(rng, 1, 4)
        call = Call(
            prompt_ids=seen,
            ids=reply,
            logprobs=[-rng.uniform(4.5, 6.5) for _ in reply],
            finish="stop",
            version=version,
        )
        reward = rng.uniform(-1, 1) if rewards is None else rewards[i]
        last = i == turns - 1
        played.append(
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
        seen = seen + reply
    return Trajectory(
        env_id=env_id,
        kwargs={},
        seed=group,
        group=group,
        member=0,
        turns=tuple(played),
        final_observation="",
        success=False,
        final_prompt=tuple(seen + _ids(rng, 1, 3)) if truncated else (),
    )


def batch(seed: int, count: int = 6, *, prompt: int = 0, **options: Any) -> list[Trajectory]:
    """Return episodes of different lengths, two per task; with `prompt`, all start with the same `prompt` tokens."""
    rng = Random(seed)
    start = _ids(rng, prompt, prompt) if prompt else ()
    return [trajectory(rng, turns=rng.randint(1, 4), prompt=start, group=i // 2, **options) for i in range(count)]


def gradient(learner: Learner) -> torch.Tensor:
    """Return the gradient of the last update as one vector."""
    return torch.cat(
        [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in learner.policy.parameters()]
    )


def _ids(rng: Random, least: int, most: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(least, most))]

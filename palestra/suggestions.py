"""Suggest the name that a user probably meant in place of an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

SYNONYMS = {  # name in another tool -> names of the same setting here, most common first
    "actor_lr": ("lr",),
    "agents": ("agent",),
    "batch_size": ("episodes", "batch"),
    "benchmark": ("eval",),
    "beta": ("dpo_beta", "kl"),
    "checkpoint_every": ("save_every",),
    "clip": ("clip_high",),
    "clip_eps": ("clip_high",),
    "clip_range": ("clip_high",),
    "clip_ratio": ("clip_high",),
    "discount": ("gamma",),
    "entropy_coef": ("entropy",),
    "environment": ("env",),
    "environments": ("envs",),
    "eval_interval": ("eval_every",),
    "evaluate": ("eval",),
    "force": ("overwrite",),
    "fresh": ("overwrite",),
    "gae_lambda": ("lam",),
    "id": ("name",),
    "grad_clip": ("max_grad_norm",),
    "kl_beta": ("kl",),
    "kl_coef": ("kl",),
    "lambda": ("lam",),
    "learning_rate": ("lr",),
    "list": ("envs",),
    "lora_r": ("lora_rank",),
    "max_new_tokens": ("max_tokens",),
    "max_steps": ("steps", "horizon"),
    "max_turns": ("horizon", "turns"),
    "model_name": ("model",),
    "model_path": ("model",),
    "num_episodes": ("episodes", "n"),
    "num_epochs": ("epochs",),
    "num_generations": ("group_size",),
    "num_samples": ("n",),
    "num_steps": ("steps",),
    "num_train_epochs": ("epochs",),
    "output": ("out",),
    "output_dir": ("out",),
    "resume_from_checkpoint": ("resume",),
    "response_length": ("max_tokens",),
    "rollout_batch_size": ("episodes",),
    "run": ("train",),
    "save_interval": ("save_every",),
    "save_steps": ("save_every",),
    "start": ("train",),
    "temp": ("temperature",),
    "test": ("check",),
    "total_steps": ("steps",),
    "upload": ("push",),
    "viewer": ("view",),
    "warmup": ("lr_warmup",),
    "warmup_steps": ("lr_warmup",),
}
MIN_SIMILARITY = 0.7  # names with a lower difflib ratio are treated as unrelated
MIN_SYNONYM_SIMILARITY = 0.9  # as above, for mistyped names in other tools
MIN_MISTYPED = 8  # characters; shorter mistyped names are only compared with the names here


def suggest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that has the same meaning as `name` or almost the same spelling; None if none does.

    Upper case, leading dashes, and dashes in place of underscores are ignored.
    """
    by_key: dict[str, str] = {}
    for item in known:
        by_key.setdefault(_key(item), item)
    key = _key(name)
    if key in by_key:
        return by_key[key]
    for synonym in SYNONYMS.get(key, ()):
        if synonym in by_key:
            return by_key[synonym]
    if len(key) >= MIN_MISTYPED:
        for match in get_close_matches(key, SYNONYMS, n=1, cutoff=MIN_SYNONYM_SIMILARITY):
            for synonym in SYNONYMS[match]:
                if synonym in by_key:
                    return by_key[synonym]
    close = get_close_matches(key, by_key, n=4, cutoff=MIN_SIMILARITY)
    close.sort(key=lambda match: sorted(match) != sorted(key))  # prefer a name that differs only in transposed letters
    return by_key[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the sentence " Did you mean ...?" with a leading space, or an empty string if no name is close."""
    suggestion = suggest(name, known)
    return "" if suggestion is None else f" Did you mean {suggestion}?"


def _key(name: str) -> str:
    return name.lstrip("-").lower().replace("-", "_").replace("++", "_pp")

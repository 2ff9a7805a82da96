"""A verifiers environment, defined as in packages for verifiers."""

from __future__ import annotations

from typing import Any


def load_environment(gym: str = "leg_counting") -> Any:
    import verifiers as vf

    return vf.ReasoningGymEnv(gym, num_train_examples=8, num_eval_examples=4)

"""Ragged batches of episodes and synthetic trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from palestra.algorithms import Episode, PolicyGradient, algorithm_names, get_algorithm, make_algorithm
from palestra.rollout.types import Failure, Trajectory, Turn
from palestra.types import Action, Call

POLICY_GRADIENTS = [  # built-in algorithms only, because other test modules register more
    name
    for name in algorithm_names()
    if issubclass(get_algorithm(name), PolicyGradient) and get_algorithm(name).__module__.startswith("palestra.")
]
# Values are rounded, so that a standard deviation is either zero or clearly above rounding errors.
numbers = st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 6))
units = st.floats(0, 1, allow_subnormal=False)


def policy_gradient(name: str, **options: Any) -> PolicyGradient[Any]:
    algorithm = make_algorithm(name, **options)
    assert isinstance(algorithm, PolicyGradient)
    return algorithm


@st.composite
def episodes(draw: st.DrawFn, *, groups: bool = False, envs: int = 2, weighted: bool = False) -> list[Episode]:
    """Generate 1 to 12 episodes of 1 to 6 turns; with `groups`, two or more per task; with `weighted`, off-policy.

    Hypothesis chooses the sizes, so that failing examples shrink. The numbers come from a seeded random generator,
    which is ten times faster.
    """
    most_groups, most_turns = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    rng = Random(draw(st.integers(0, 2**32)))
    sparse = rng.random() < 0.5  # typical game rewards: mostly 0 and 1, with many ties

    def row(count: int) -> list[float]:
        return [rng.choice((0.0, 0.0, 1.0)) if sparse else round(rng.uniform(-10, 10), 6) for _ in range(count)]

    result = []
    for group in range(rng.randint(1, most_groups)):
        env_id = f"game:E{rng.randint(1, envs)}-v0"
        for _ in range(rng.randint(2, 4) if groups else rng.randint(1, 3)):
            turns = rng.randint(1, most_turns)
            tokens = [turn for turn in range(turns) for _ in range(rng.randint(1, 3))]
            result.append(
                Episode(
                    rewards=row(turns),
                    group=group,
                    env_id=env_id,
                    seed=100 + group,
                    truncated=rng.random() < 0.5,
                    values=row(turns),
                    last_value=round(rng.uniform(-10, 10), 6),
                    kl=row(turns),
                    token_turns=tokens,
                    token_values=row(len(tokens)),
                    teacher_kl=row(len(tokens)),
                    weight=round(rng.uniform(0.1, 3), 3) if weighted else 1.0,
                    ratios=[round(rng.uniform(0.1, 3), 3) for _ in range(turns)] if weighted else None,
                    token_ratios=[round(rng.uniform(0.1, 3), 3) for _ in tokens] if weighted else None,
                    reply_tokens=[tokens.count(turn) for turn in range(turns)],
                    cut=rng.random() < 0.3,
                    observations=[rng.choice("abc") for _ in range(turns)],
                )
            )
    return result


def close(result: Sequence[Sequence[float]], expected: Sequence[Sequence[float]], tolerance: float = 1e-9) -> bool:
    return len(result) == len(expected) and all(
        len(a) == len(b) and all(abs(x - y) <= tolerance * max(1.0, abs(y)) for x, y in zip(a, b, strict=True))
        for a, b in zip(result, expected, strict=True)
    )


def trajectory(
    rewards: Sequence[float],
    *,
    seed: int = 0,
    member: int = 0,
    success: bool | None = True,
    failed: bool = False,
    truncated: bool = False,
    tokens: int = 3,
    words: str = "",
    **changes: Any,
) -> Trajectory:
    """Return a trajectory as a rollout produces it, with `tokens` sampled at each turn."""
    turns = []
    for i, reward in enumerate(rewards):
        last = i == len(rewards) - 1
        ids = list(range(tokens))
        call = Call(prompt_ids=[1, 2], ids=ids, logprobs=[-0.5] * tokens, finish="stop", version=0)
        turns.append(
            Turn(
                observation="?",
                action=Action(text=f"{words or member} {i}", calls=(call,)),
                reward=reward,
                terminated=last and not truncated and not failed,
                truncated=last and truncated,
                info={},
                agent_seconds=0.0,
                env_seconds=0.0,
            )
        )
    return Trajectory(
        env_id=changes.get("env_id", "game:GuessTheNumber-v0-easy"),
        kwargs=changes.get("kwargs", {}),
        seed=seed,
        group=changes.get("group", seed),
        member=member,
        turns=tuple(turns),
        final_observation="!",
        success=None if failed else success,
        failure=Failure(boundary="engine", kind="EngineFailed", message="gone") if failed else None,
    )

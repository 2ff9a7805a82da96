"""The nouns of credit: episodes in, an advantage for every turn out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar, Literal, Self

from palestra.errors import BadValue
from palestra.rollout.types import Trajectory

Level = Literal["turn", "token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What an algorithm needs to know of a trajectory: numbers, a row of them for each turn."""

    rewards: Sequence[float]  # of each turn
    group: int = 0
    env_id: str = ""
    seed: int | None = None
    truncated: bool = False  # cut short from outside: the last state still had a future
    values: Sequence[float] | None = None  # the critic's, at the end of each turn's observation
    last_value: float = 0.0  # the critic's, of the state after the last turn; counts only where truncated
    kl: Sequence[float] | None = None  # to the reference, summed over the turn's sampled tokens
    token_turns: Sequence[int] | None = None  # the turn of each sampled token, in order (for a token-level critic)
    token_values: Sequence[float] | None = None  # the critic's, before each sampled token

    def __post_init__(self) -> None:
        turns = len(self.rewards)
        if turns == 0:
            raise BadValue(f"{self.where}: no turn was played, so there is nothing to credit; leave the episode out")
        _check(self.where, "rewards", self.rewards, turns)
        _check(self.where, "values", self.values, turns)
        _check(self.where, "kl", self.kl, turns)
        _check(self.where, "last_value", [self.last_value], 1)
        tokens = self.token_turns
        if tokens is not None and (list(tokens) != sorted(tokens) or set(tokens) != set(range(turns))):
            raise BadValue(f"{self.where}: token_turns names turns 0 to {turns - 1} in order, none without a token")
        _check(self.where, "token_values", self.token_values, len(tokens or ()))

    @classmethod
    def of(
        cls,
        trajectory: Trajectory,
        *,
        values: Sequence[float] | None = None,
        last_value: float = 0.0,
        kl: Sequence[float] | None = None,
        token_values: Sequence[float] | None = None,
    ) -> Self:
        """The numbers of a trajectory that was played to its end."""
        if trajectory.failure is not None:
            raise BadValue(
                f"{trajectory.env_id} seed {trajectory.seed} failed at the {trajectory.failure.boundary} "
                f"({trajectory.failure.kind}); a failure is no reward: leave the trajectory out"
            )
        token_turns = None
        if token_values is not None:
            token_turns = [i for i, turn in enumerate(trajectory.turns) for call in turn.action.calls for _ in call.ids]
        return cls(
            rewards=trajectory.rewards,
            group=trajectory.group,
            env_id=trajectory.env_id,
            seed=trajectory.seed,
            truncated=trajectory.truncated and not trajectory.turns[-1].terminated,
            values=values,
            last_value=last_value,
            kl=kl,
            token_turns=token_turns,
            token_values=token_values,
        )

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"{self.env_id or 'an episode'} (group {self.group}, seed {self.seed})"

    @property
    def task(self) -> Hashable:
        """Episodes with the same task may be compared. The seed is in it, for collections each count groups from 0."""
        return self.env_id, self.group, self.seed

    def net_rewards(self, beta: float) -> list[float]:
        """Reward minus `beta` times KL, a turn at a time."""
        if beta == 0.0:
            return list(self.rewards)
        if self.kl is None:
            raise BadValue(f"{self.where}: beta={beta} puts the KL into the reward; give kl= a turn, or set beta=0")
        return [reward - beta * kl for reward, kl in zip(self.rewards, self.kl, strict=True)]


def _check(where: str, name: str, numbers: Sequence[float] | None, count: int) -> None:
    if numbers is None:
        return
    if len(numbers) != count:
        raise BadValue(f"{where}: {name} has {len(numbers)} numbers where {count} are needed")
    if not all(map(isfinite, numbers)):
        bad = next(i for i, number in enumerate(numbers) if not isfinite(number))
        raise BadValue(f"{where}: {name}[{bad}] is {numbers[bad]}; one such number would spoil the whole batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What each turn (or token, by the algorithm's `level`) of each episode was worth."""

    advantages: list[list[float]]
    returns: list[list[float]] | None = None  # what a critic should have said
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def signal(self) -> bool:
        """Is there anything to learn from: an advantage other than zero?"""
        return any(advantage != 0.0 for row in self.advantages for advantage in row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(ABC):
    """A way to give credit. Fields are its options; `credit` is a pure function of the batch."""

    name: ClassVar[str]
    needs_groups: ClassVar[bool] = False  # several episodes of each task
    needs_critic: ClassVar[bool] = False
    level: ClassVar[Level] = "turn"  # what one number of a Credit stands for

    gamma: float = 1.0  # discount of a turn
    beta: float = 0.0  # how much of the KL to the reference is taken off the reward

    def __post_init__(self) -> None:
        unit("gamma", self.gamma)
        if not (isfinite(self.beta) and self.beta >= 0):
            raise BadValue(f"beta is 0 or more, got {self.beta}")

    @property
    def needs_reference(self) -> bool:
        """Must episodes carry their KL?"""
        return self.beta > 0

    @abstractmethod
    def credit(self, episodes: Sequence[Episode]) -> Credit:
        """Advantages for a whole batch: statistics reach over all of it, so it must not be split before."""


def unit(name: str, value: float) -> float:
    """`value`, if it lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise BadValue(f"{name} lies in [0, 1], got {value}")
    return value

"""Inputs and outputs of advantage estimators: numeric episode data, returns, and advantages per turn or token."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Self

from palestra.errors import BadValue
from palestra.rollout.types import Trajectory, Turn
from palestra.spec import fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The rewards, values and other numbers from a trajectory that advantage estimators use."""

    rewards: Sequence[float]  # one per turn
    group: int = 0
    env_id: str = ""
    seed: int | None = None
    truncated: bool = False  # the horizon or context window ended the episode, so its last state's value is not 0
    values: Sequence[float] | None = None  # critic value at the end of each turn's observation
    last_value: float = 0.0  # critic value of the state after the last turn; used only if truncated
    kl: Sequence[float] | None = None  # KL to the reference model, summed over the sampled tokens of each turn
    token_turns: Sequence[int] | None = None  # turn of each sampled token, in order; for token-level critics
    token_values: Sequence[float] | None = None  # critic value before each sampled token
    teacher_kl: Sequence[float] | None = None  # log p / p_teacher of each sampled token, for distillation
    weight: float = 1.0  # importance weight of the episode in means over episodes
    ratios: Sequence[float] | None = None  # truncated importance ratio of each turn
    token_ratios: Sequence[float] | None = None  # truncated importance ratio of each sampled token
    reply_tokens: Sequence[int] | None = None  # number of sampled tokens in each turn
    cut: bool = False  # the last reply reached max_tokens, or the context was full
    observations: Sequence[str] | None = None  # fingerprint of the observation before each turn

    def __post_init__(self) -> None:
        turns = len(self.rewards)
        if turns == 0:
            raise BadValue(f"{self.label} has no turns, so it has no advantages; exclude it from the batch")
        _check(self.label, "rewards", self.rewards, turns)
        _check(self.label, "values", self.values, turns)
        _check(self.label, "kl", self.kl, turns)
        _check(self.label, "ratios", self.ratios, turns)
        _check(self.label, "reply_tokens", self.reply_tokens, turns)
        if self.observations is not None and len(self.observations) != turns:
            raise BadValue(f"{self.label}: observations has {len(self.observations)} entries, expected {turns}")
        _check(self.label, "last_value", [self.last_value], 1)
        _check(self.label, "weight", [self.weight], 1)
        tokens = self.token_turns
        if tokens is not None and (list(tokens) != sorted(tokens) or set(tokens) != set(range(turns))):
            raise BadValue(
                f"{self.label}: token_turns must list turns 0 to {turns - 1} in order, with at least one token each"
            )
        for name in ("token_values", "token_ratios", "teacher_kl"):
            _check(self.label, name, getattr(self, name), len(tokens or ()))

    @classmethod
    def from_trajectory(
        cls,
        trajectory: Trajectory,
        *,
        values: Sequence[float] | None = None,
        last_value: float = 0.0,
        kl: Sequence[float] | None = None,
        token_values: Sequence[float] | None = None,
        teacher_kl: Sequence[float] | None = None,
        weight: float = 1.0,
        ratios: Sequence[float] | None = None,
        token_ratios: Sequence[float] | None = None,
    ) -> Self:
        """Build an episode from a finished trajectory; raise BadValue if the trajectory failed."""
        if trajectory.failure is not None:
            raise BadValue(
                f"the episode of {trajectory.env_id} with seed {trajectory.seed} failed at the "
                f"{trajectory.failure.boundary} boundary ({trajectory.failure.kind}); exclude failed trajectories"
            )
        reply_tokens = [sum(len(call.ids) for call in turn.action.calls) for turn in trajectory.turns]
        token_turns = None
        if any(numbers is not None for numbers in (token_values, token_ratios, teacher_kl)):
            token_turns = [turn for turn, count in enumerate(reply_tokens) for _ in range(count)]
        last = trajectory.turns[-1] if trajectory.turns else None
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
            teacher_kl=teacher_kl,
            weight=weight,
            ratios=ratios,
            token_ratios=token_ratios,
            reply_tokens=reply_tokens,
            cut=last is not None
            and (last.info.get("ending") == "context" or any(call.finish == "length" for call in last.action.calls)),
            observations=[fingerprint(turn.observation) for turn in trajectory.turns],
        )

    @property
    def label(self) -> str:
        """Description of the episode for error messages."""
        return f"{self.env_id or 'an episode'} (group {self.group}, seed {self.seed})"

    @property
    def task(self) -> Hashable:
        """Key shared by a task's episodes. It includes the seed, since group numbers repeat across rollouts."""
        return self.env_id, self.group, self.seed

    def penalized_rewards(self, kl_coef: float) -> list[float]:
        """Return the reward minus `kl_coef` times the KL, for each turn."""
        if kl_coef == 0.0:
            return list(self.rewards)
        if self.kl is None:
            raise BadValue(f"{self.label}: the KL is part of the reward, so `kl` is required (one number per turn)")
        return [reward - kl_coef * kl for reward, kl in zip(self.rewards, self.kl, strict=True)]


def _check(label: str, name: str, numbers: Sequence[float] | None, count: int) -> None:
    if numbers is None:
        return
    if len(numbers) != count:
        raise BadValue(f"{label}: {name} has {len(numbers)} numbers, expected {count}")
    if not all(map(isfinite, numbers)):
        bad = next(i for i, number in enumerate(numbers) if not isfinite(number))
        raise BadValue(f"{label}: {name}[{bad}] is {numbers[bad]}, which would make the whole batch non-finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Advantages for a batch: one row per episode, with one number per turn or sampled token (see `level`)."""

    advantages: list[list[float]]
    returns: list[list[float]] | None = None  # regression targets for the critic
    excluded: Sequence[bool] | None = None  # episodes to exclude from the loss and its denominators; None excludes none
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def kept(self) -> list[int]:
        """Indices of the episodes that are not excluded."""
        excluded = self.excluded or [False] * len(self.advantages)
        return [i for i, out in enumerate(excluded) if not out]

    @property
    def signal(self) -> bool:
        """True if any advantage in the loss is nonzero, so that the policy gradient can be nonzero."""
        return any(advantage != 0.0 for i in self.kept for advantage in self.advantages[i])


def penalize_cut_replies(trajectories: Sequence[Trajectory], penalty: float) -> list[Trajectory]:
    """Subtract `penalty` from the reward of each turn whose reply reached the token limit before its end.

    An action is often valid without the end of the reply. Without a penalty, the last token then has no effect on the
    return, so chance decides which token the policy learns there, and its gradient is only noise.
    """

    def penalized(turn: Turn) -> Turn:
        cut = any(call.finish == "length" for call in turn.action.calls)
        return replace(turn, reward=turn.reward - penalty) if cut else turn

    if not penalty:
        return list(trajectories)
    return [replace(trajectory, turns=tuple(map(penalized, trajectory.turns))) for trajectory in trajectories]


def early_share(episodes: Sequence[Episode]) -> float:
    """Return the share of all positive rewards that are received before the last turn of an episode; 0 if none is."""
    total = sum(max(0.0, reward) for episode in episodes for reward in episode.rewards)
    early = sum(max(0.0, reward) for episode in episodes for reward in episode.rewards[:-1])
    return early / total if total > 0 else 0.0


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """Return G_t = r_t + gamma G_{t+1} for every turn t."""
    if not 0 <= gamma <= 1:
        raise BadValue(f"gamma must be in [0, 1], got {gamma}")
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def turn_returns(episodes: Sequence[Episode], *, gamma: float, kl_coef: float = 0.0) -> list[list[float]]:
    """Return the return-to-go for every turn in a batch, after the KL penalty."""
    return [returns_to_go(episode.penalized_rewards(kl_coef), gamma) for episode in episodes]


def to_tokens(per_turn: Sequence[float], turn_index: Sequence[int]) -> list[float]:
    """Expand one value per turn to one per token, with 0 for tokens that the policy did not sample (index below 0)."""
    _check_turns(turn_index, len(per_turn))
    return [per_turn[turn] if turn >= 0 else 0.0 for turn in turn_index]


def to_turns(per_token: Sequence[float], turn_index: Sequence[int], turns: int) -> list[float]:
    """Sum the token values in each turn; ignore tokens that the policy did not sample (index below 0)."""
    _check_turns(turn_index, turns)
    sums = [0.0] * turns
    for number, turn in zip(per_token, turn_index, strict=True):
        if turn >= 0:
            sums[turn] += number
    return sums


def _check_turns(turn_index: Sequence[int], turns: int) -> None:
    if max(turn_index, default=-1) >= turns:
        raise BadValue(f"turn_index refers to turn {max(turn_index)}, but the episode has {turns} turns (0-based)")

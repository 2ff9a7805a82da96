"""Turn finished trajectories into token samples for a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palestra.errors import BadValue
from palestra.rollout.types import Trajectory
from palestra.types import Call


@dataclass(slots=True, kw_only=True)
class TrainingSample:
    """Tokens in the order in which the model read and sampled them, and lists with one number per token.

    `ids`, `mask`, `logprobs` and `turn_index` come from the trajectory. `training/precompute.py` and `training/step.py`
    fill in the other lists before the first update in a step.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)  # 1 if the model sampled the token, 0 if it is part of a prompt
    logprobs: list[float] = field(default_factory=list)  # log-probs reported by the engine; 0 if the mask is 0
    turn_index: list[int] = field(default_factory=list)  # index of the turn that sampled the token; -1 if the mask is 0
    episode: int = 0  # index of the trajectory in its batch
    episode_tokens: int = 0  # number of the trajectory's tokens in the loss, over all its samples
    offset: int = 0  # number of sampled tokens in the trajectory's earlier samples
    old_logprobs: list[float] | None = None  # log-probs under the policy that sampled the tokens, at its temperature
    proximal_logprobs: list[float] | None = None  # log-probs at the start of the step, if the policy differs by then
    weights: list[float] | None = None  # importance weights
    loss_mask: list[int] | None = None  # 1 for the tokens in the loss; None if these are all sampled tokens
    ref_logprobs: list[float] | None = None  # log-probs under the reference model
    teacher_logprobs: list[float] | None = None  # log-probs under the teacher model
    entropy_weights: list[float] | None = None  # factors of the entropy bonus
    start_ids: list[int] | None = None  # tokens that the model at the start of RL sampled instead; -1: none
    values: list[float] | None = None  # predicted by the critic
    advantages: list[float] | None = None
    returns: list[float] | None = None  # training targets for the critic

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sampled(self) -> int:
        """Number of sampled tokens."""
        return sum(self.mask)

    @classmethod
    def of_prompt(cls, ids: Sequence[int], episode: int = 0) -> TrainingSample:
        """Return a sample with a prompt and a placeholder token, at which the critic predicts the prompt's value."""
        size = len(ids) + 1
        return cls(ids=[*ids, 0], mask=[0] * size, logprobs=[0.0] * size, turn_index=[-1] * size, episode=episode)


def to_samples(trajectory: Trajectory, episode: int = 0) -> list[TrainingSample]:
    """Convert a trajectory to samples; there is only one if every prompt extends the previous call's tokens.

    A prompt that does not extend them, because the chat template or the context policy changed it, starts a new sample.
    Raises BadValue for a failed trajectory and for one without token ids.
    """
    if trajectory.failure is not None:
        raise BadValue(
            f"{_label(trajectory)} failed ({trajectory.failure.kind}); exclude failed episodes from training"
        )
    samples: list[TrainingSample] = []
    offset = 0
    for index, turn in enumerate(trajectory.turns):
        if not turn.action.calls:
            raise BadValue(f"{_label(trajectory)}: turn {index} has no model call, so there is nothing to train on")
        for call in turn.action.calls:
            _check(call, f"{_label(trajectory)}, turn {index}")
            if not samples or call.prompt_ids[: len(samples[-1])] != samples[-1].ids:
                samples.append(TrainingSample(episode=episode, offset=offset))
            _append(samples[-1], call, index)
            offset += len(call.ids)
    for sample in samples:
        sample.episode_tokens = offset
    return samples


def to_batch(trajectories: Sequence[Trajectory]) -> list[TrainingSample]:
    """Return the samples from several trajectories, numbered by `episode`."""
    return [sample for i, trajectory in enumerate(trajectories) for sample in to_samples(trajectory, i)]


def _append(sample: TrainingSample, call: Call, turn: int) -> None:
    read = call.prompt_ids[len(sample) :]
    sampled = len(call.ids)
    sample.ids.extend(read)
    sample.ids.extend(call.ids)
    sample.mask.extend([0] * len(read) + [1] * sampled)
    sample.logprobs.extend([0.0] * len(read) + call.logprobs)
    sample.turn_index.extend([-1] * len(read) + [turn] * sampled)


def _check(call: Call, label: str) -> None:
    if not call.prompt_ids or not call.ids:
        raise BadValue(
            f"{label}: the engine returned no token ids, which training needs; use LocalEngine, or OpenAIEngine with a "
            "server that returns token ids"
        )
    if len(call.logprobs) != len(call.ids):
        raise BadValue(
            f"{label}: the engine returned {len(call.ids)} tokens but {len(call.logprobs)} log-probabilities"
        )


def _label(trajectory: Trajectory) -> str:
    return f"the episode of {trajectory.env_id} with seed {trajectory.seed} (member {trajectory.member})"

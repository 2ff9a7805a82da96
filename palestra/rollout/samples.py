"""Turn a finished trajectory into token samples a loss can read."""

from __future__ import annotations

from dataclasses import dataclass

from palestra.errors import BadValue
from palestra.rollout.types import Trajectory
from palestra.types import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Tokens in the order the model read and sampled them; all lists are of one length."""

    ids: list[int]
    mask: list[int]  # 1 where the model sampled the token, 0 where it read it
    logprobs: list[float]  # as sampled; 0 where the mask is 0
    turn_index: list[int]  # the turn that sampled the token, -1 where the mask is 0
    rewards: list[float]  # each turn's reward, on the last token of its action: masked tokens earn nothing

    def __len__(self) -> int:
        return len(self.ids)


def to_samples(trajectory: Trajectory) -> list[Sample]:
    """One sample for as long as each prompt goes on from the tokens before it; where one does not, another begins.

    A failed trajectory has none: what cut it off was not the model's doing.
    """
    if trajectory.failure is not None:
        raise BadValue(f"{_name(trajectory)} failed ({trajectory.failure.kind}); failures are kept out of training")
    samples: list[Sample] = []
    for index, turn in enumerate(trajectory.turns):
        calls = turn.action.calls
        if not calls:
            raise BadValue(f"{_name(trajectory)}: no model was asked in turn {index}, so there is nothing to train on")
        acted = max((i for i, call in enumerate(calls) if call.kind == "act"), default=len(calls) - 1)
        for position, call in enumerate(calls):
            _check(call, f"{_name(trajectory)}, turn {index}")
            if not samples or call.prompt_ids[: len(samples[-1])] != samples[-1].ids:
                samples.append(Sample(ids=[], mask=[], logprobs=[], turn_index=[], rewards=[]))
            _append(samples[-1], call, index, turn.reward if position == acted else 0.0)
    return samples


def _append(sample: Sample, call: Call, turn: int, reward: float) -> None:
    read = call.prompt_ids[len(sample) :]
    sampled = len(call.ids)
    sample.ids.extend(read)
    sample.ids.extend(call.ids)
    sample.mask.extend([0] * len(read) + [1] * sampled)
    sample.logprobs.extend([0.0] * len(read) + call.logprobs)
    sample.turn_index.extend([-1] * len(read) + [turn] * sampled)
    sample.rewards.extend([0.0] * (len(read) + sampled - 1) + [reward])


def _check(call: Call, where: str) -> None:
    if not call.prompt_ids or not call.ids:
        raise BadValue(
            f"{where}: the engine showed no token ids, so the reply cannot be trained on; use an engine that does "
            "(palestra.engines.local.engine, or openai with a server that returns token ids)"
        )
    if len(call.logprobs) != len(call.ids):
        raise BadValue(f"{where}: {len(call.ids)} tokens came with {len(call.logprobs)} log-probabilities")


def _name(trajectory: Trajectory) -> str:
    return f"the episode of {trajectory.env_id} with seed {trajectory.seed} (member {trajectory.member})"

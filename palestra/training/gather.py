"""The rollouts of all processes -> one result for metrics: everything but words and token ids."""

from __future__ import annotations

from dataclasses import replace

from palestra.rollout import RolloutResult
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.types import Trajectory, Turn
from palestra.training.distributed import World
from palestra.types import Action, Call


def pooled(result: RolloutResult, world: World) -> RolloutResult:
    """What all processes played. The trajectories in it can be counted, not read or trained on."""
    if world.size == 1:
        return result
    mine = ([light(t) for t in result.trajectories], [light(t) for t in result.failures], result.metrics["seconds"])
    shares = world.gather(mine)
    everyone = RolloutResult(
        trajectories=[t for share in shares for t in share[0]],
        failures=[t for share in shares for t in share[1]],
    )
    everyone.metrics = compute_metrics(everyone.trajectories, everyone.failures, max(share[2] for share in shares))
    return everyone


def light(trajectory: Trajectory) -> Trajectory:
    """The same numbers; a reply is as long as it was, and says nothing."""
    return replace(
        trajectory, turns=tuple(_turn(turn) for turn in trajectory.turns), final_observation="", final_prompt=()
    )


def _turn(turn: Turn) -> Turn:
    info = {key: turn.info[key] for key in ("success", "ending", "invalid") if key in turn.info}
    return replace(turn, observation="", action=Action(text="", calls=tuple(map(_call, turn.action.calls))), info=info)


def _call(call: Call) -> Call:
    return replace(call, prompt_ids=[], ids=[0] * len(call.ids), logprobs=[], prompt=None)

"""THE loop between an agent and an environment: one episode in, one trajectory out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from time import perf_counter, time
from typing import Any

from palestra.agents.base import Agent
from palestra.core import Env
from palestra.errors import ContextFull, InfrastructureError
from palestra.rollout.types import Failure, Task, Trajectory, Turn


async def play(
    env: Env,
    agent: Agent,
    task: Task,
    *,
    agent_seed: int | None = None,
    call_timeout: float | None = None,
    attempt: int = 1,
    out_of_time: Callable[[], str | None] = lambda: None,
    begun: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Play `task` in `env` to its end.

    Whatever breaks on the way (an exception of env, tool or engine, a call longer than `call_timeout`) ends the
    trajectory with a `failure` and keeps the turns so far; it is never a reward. Cancelling passes through, unless
    `out_of_time` gives a reason to record instead. `begun` is called when the first observation is there.
    """
    trajectory = Trajectory.of(task, attempt=attempt, started=time())
    turns: list[Turn] = []
    began = perf_counter()
    session = None
    observation: Any = ""
    final_prompt: list[int] = []
    side = "env"  # who is busy, for failures that do not say so themselves
    try:
        async with _limit(call_timeout):
            observation, info = await env.areset(seed=task.seed, options=dict(task.options) or None)
        begun()
        session = agent.begin(env, seed=agent_seed)
        success: bool | None = None
        clock = perf_counter()
        while success is None:
            side = "agent"
            try:
                async with _limit(call_timeout):
                    action = await session.act(observation, info)
            except ContextFull as err:
                if not turns:
                    raise
                turns[-1] = _cut(turns[-1], str(err))
                success = False
                break
            thought = perf_counter()
            side = "env"
            async with _limit(call_timeout):
                step = await env.astep(action.text)
            acted = perf_counter()
            turns.append(
                Turn(
                    observation=observation,
                    action=action,
                    reward=step.reward,
                    terminated=step.terminated,
                    truncated=step.truncated,
                    info=step.info,
                    agent_seconds=thought - clock,
                    env_seconds=acted - thought,
                )
            )
            observation, clock = step.observation, acted
            info = {**step.info, "reward": step.reward}  # an agent that reflects may look at it
            if step.terminated or step.truncated:
                success = bool(info["success"])
                if not step.terminated:
                    final_prompt = session.next_prompt(observation, info)
        failure = None
    except Exception as err:  # noqa: BLE001  # the record of it is the point
        success, failure = None, _failure(err, side)
    except asyncio.CancelledError:
        reason = out_of_time()
        if reason is None:
            raise
        success, failure = None, Failure(boundary="budget", kind="OutOfTime", message=reason)
    finally:
        if session is not None:
            session.close()
    return replace(
        trajectory,
        turns=tuple(turns),
        final_observation=observation,
        final_prompt=tuple(final_prompt),
        success=success,
        failure=failure,
        seconds=perf_counter() - began,
    )


def _limit(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if seconds is None else asyncio.timeout(seconds)


def _cut(last: Turn, why: str) -> Turn:
    """The conversation filled the model's window: cut short from outside, like a horizon."""
    info = {**last.info, "success": False, "ending": "context", "detail": why}
    return replace(last, truncated=True, info=info)


def _failure(err: Exception, side: str) -> Failure:
    boundary = err.boundary if isinstance(err, InfrastructureError) else side
    message = "no answer within the time limit" if isinstance(err, TimeoutError) and not str(err) else str(err)
    return Failure(
        boundary=boundary,
        kind=type(err).__name__,
        message=message[:2000],
        trace="".join(traceback.format_exception(err))[-4000:],
    )

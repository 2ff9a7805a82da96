"""The agent-environment loop: run one episode and return its trajectory."""

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


async def run_episode(
    env: Env,
    agent: Agent,
    task: Task,
    *,
    agent_seed: int | None = None,
    call_timeout: float | None = None,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    attempt: int = 1,
    cancel_reason: Callable[[], str | None] = lambda: None,
    on_reset: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Run `task` in `env` until the episode ends.

    If the env, a tool or the engine raises an exception, or if a call takes longer than `call_timeout`, the trajectory
    ends with a `failure` and keeps the turns so far; a failure is never scored as a reward. If set, `step_timeout` and
    `reset_timeout` replace `call_timeout` for env calls. Cancellation propagates, unless `cancel_reason` returns a
    reason, which is then recorded as the failure. `on_reset` is called after the first observation.
    """
    trajectory = Trajectory.of(task, attempt=attempt, started=time())
    turns: list[Turn] = []
    started = perf_counter()
    session = None
    observation: Any = ""
    task_id = ""
    final_prompt: list[int] = []
    boundary = "env"  # the component to which exceptions without a boundary are attributed
    try:
        async with _limit(call_timeout if reset_timeout is None else reset_timeout):
            observation, info = await env.areset(seed=task.seed, options=dict(task.options) or None)
        task_id = str(info.get("task_id", ""))
        on_reset()
        session = agent.start(env, seed=agent_seed)
        success: bool | None = None
        clock = perf_counter()
        while success is None:
            boundary = "agent"
            try:
                async with _limit(call_timeout):
                    action = await session.act(observation, info)
            except ContextFull as err:
                if not turns:
                    raise
                turns[-1] = _truncate(turns[-1], str(err))
                final_prompt = session.next_prompt(observation, info)
                success = False
                break
            replied = perf_counter()
            boundary = "env"
            async with _limit(call_timeout if step_timeout is None else step_timeout):
                step = await env.astep(action.text)
            stepped = perf_counter()
            turns.append(
                Turn(
                    observation=observation,
                    action=action,
                    reward=step.reward,
                    terminated=step.terminated,
                    truncated=step.truncated,
                    info=step.info,
                    agent_seconds=replied - clock,
                    env_seconds=stepped - replied,
                )
            )
            observation, clock = step.observation, stepped
            info = {**step.info, "reward": step.reward}  # `Reflection` uses the reward
            if step.terminated or step.truncated:
                success = bool(info.get("success", step.terminated and step.reward > 0))
                if not step.terminated:
                    final_prompt = session.next_prompt(observation, info)
        failure = None
    except Exception as err:  # noqa: BLE001  # recorded in the trajectory
        success, failure = None, _failure(err, boundary)
    except asyncio.CancelledError:
        reason = cancel_reason()
        if reason is None:
            raise
        success, failure = None, Failure(boundary="budget", kind="OutOfTime", message=reason)
    finally:
        if session is not None:
            session.close()
    return replace(
        trajectory,
        turns=tuple(turns),
        task_id=task_id,
        final_observation=observation,
        final_prompt=tuple(final_prompt),
        success=success,
        failure=failure,
        seconds=perf_counter() - started,
    )


def _limit(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if seconds is None else asyncio.timeout(seconds)


def _truncate(last: Turn, detail: str) -> Turn:
    """Return the last turn marked as truncated, because the conversation fills the context window."""
    info = {**last.info, "success": False, "ending": "context", "detail": detail}
    return replace(last, truncated=True, info=info)


def _failure(err: Exception, default_boundary: str) -> Failure:
    boundary = err.boundary if isinstance(err, InfrastructureError) else default_boundary
    message = "no reply within the time limit" if isinstance(err, TimeoutError) and not str(err) else str(err)
    return Failure(
        boundary=boundary,
        kind=type(err).__name__,
        message=message[:2000],
        trace="".join(traceback.format_exception(err))[-4000:],
    )

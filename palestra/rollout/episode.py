"""The agent-environment loop: run one episode and return its trajectory."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter, time
from typing import Any

from palestra.agents.base import Agent
from palestra.core import Env, Reset
from palestra.errors import ContextFull, InfrastructureError
from palestra.rollout.slow_calls import slow_calls
from palestra.rollout.types import Failure, Task, Trajectory, Turn
from palestra.threads import run_in_thread
from palestra.types import Action, Observation, Step, finite_reward


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
    fail_on_long_prompt: bool = False,
    cancel_reason: Callable[[], str | None] = lambda: None,
    on_reset: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Run `task` in `env` until the episode ends.

    If the env, a tool or the engine raises an exception or SystemExit, if a reward is not a finite number, or if a call
    takes longer than `call_timeout`, the trajectory ends with a `failure` and keeps the turns so far; a failure is
    never scored as a reward. If set, `step_timeout` and `reset_timeout` replace `call_timeout` for env calls.
    Cancellation propagates, unless `cancel_reason` returns a reason, which is then recorded as the failure. `on_reset`
    is called after the first observation.

    If the conversation fills the context window, the episode is truncated and unsuccessful; with `fail_on_long_prompt`,
    it is a failure if that happens before the first action. An empty reply from a server also ends the episode: it is
    recorded as the last action, with `info["ending"] == "empty_reply"`, but not passed to the env.
    """
    started_at = time()
    turns: list[Turn] = []
    started = perf_counter()
    session = None
    observation: Any = ""
    task_id = ""
    final_prompt: list[int] = []
    boundary = "env"  # the component to which exceptions without a boundary are attributed
    try:
        observation, info = await _reset(env, task, call_timeout if reset_timeout is None else reset_timeout)
        task_id = str(info.get("task_id", ""))
        on_reset()
        session = agent.start(env, seed=agent_seed)
        success: bool | None = None
        clock = perf_counter()
        while success is None:
            boundary = "agent"
            try:
                if call_timeout is None:
                    action = await session.act(observation, info)
                else:
                    async with asyncio.timeout(call_timeout):
                        action = await session.act(observation, info)
            except ContextFull as err:
                if not turns and fail_on_long_prompt:
                    raise
                if turns:
                    final_prompt = session.next_prompt(observation, info)
                else:
                    turns.append(_unplayed(observation, Action(text=""), perf_counter() - clock))
                turns[-1] = _truncate(turns[-1], "context", str(err))
                success = False
                break
            replied = perf_counter()
            if action.calls and action.calls[-1].finish == "empty":
                detail = "the server returned neither text nor tool calls"
                turns.append(_truncate(_unplayed(observation, action, replied - clock), "empty_reply", detail))
                success = False
                break
            boundary = "env"
            step = await _step(env, task, action.text, call_timeout if step_timeout is None else step_timeout)
            stepped = perf_counter()
            reward = finite_reward(step.reward)
            turns.append(
                Turn(
                    observation=observation,
                    action=action,
                    reward=reward,
                    terminated=step.terminated,
                    truncated=step.truncated,
                    info=step.info,
                    agent_seconds=replied - clock,
                    env_seconds=stepped - replied,
                )
            )
            observation, clock = step.observation, stepped
            info = {**step.info, "reward": reward}  # `Reflection` uses the reward
            if step.terminated or step.truncated:
                success = bool(info.get("success", step.terminated and reward > 0))
                if session.reads_end or not step.terminated:
                    final_prompt = session.next_prompt(observation, info)
        failure = None
    except (Exception, SystemExit) as err:  # noqa: BLE001  # recorded in the trajectory
        success, failure = None, failure_of(err, boundary)
    except asyncio.CancelledError:
        reason = cancel_reason()
        if reason is None:
            raise
        success, failure = None, Failure(boundary="budget", kind="OutOfTime", message=reason)
    finally:
        if session is not None:
            session.close()
    return Trajectory(
        env_id=task.env_id,
        kwargs=task.kwargs,
        seed=task.seed,
        group=task.group,
        member=task.member,
        turns=tuple(turns),
        final_observation=observation,
        success=success,
        final_prompt=tuple(final_prompt),
        failure=failure,
        task_id=task_id,
        attempts=attempt,
        started=started_at,
        seconds=perf_counter() - started,
        meta=task.meta,
    )


async def _reset(env: Env, task: Task, seconds: float | None) -> Reset:
    options = dict(task.options) or None
    if seconds is None:
        number = slow_calls.begin(env, task, "reset")
        try:
            return await env.areset(seed=task.seed, options=options)
        finally:
            slow_calls.end(number)
    async with asyncio.timeout(seconds):
        if env.inline:  # a call on the event loop could not be interrupted
            return await run_in_thread(env.reset, seed=task.seed, options=options)
        return await env.areset(seed=task.seed, options=options)


async def _step(env: Env, task: Task, action: str, seconds: float | None) -> Step:
    if seconds is None:
        number = slow_calls.begin(env, task, "step")
        try:
            return await env.astep(action)
        finally:
            slow_calls.end(number)
    async with asyncio.timeout(seconds):
        if env.inline:
            return await run_in_thread(env.step, action)
        return await env.astep(action)


def _unplayed(observation: Observation, action: Action, seconds: float) -> Turn:
    """Return a turn whose action was not passed to the environment."""
    info: Mapping[str, Any] = {}
    return Turn(
        observation=observation,
        action=action,
        reward=0.0,
        terminated=False,
        truncated=True,
        info=info,
        agent_seconds=seconds,
        env_seconds=0.0,
    )


def _truncate(last: Turn, ending: str, detail: str) -> Turn:
    """Return the last turn marked as truncated and unsuccessful."""
    return replace(last, truncated=True, info={**last.info, "success": False, "ending": ending, "detail": detail})


def failure_of(err: BaseException, default_boundary: str) -> Failure:
    """Convert an exception to a Failure; `default_boundary` is used for exceptions without a boundary."""
    boundary = err.boundary if isinstance(err, InfrastructureError) else default_boundary
    message = str(err)
    if isinstance(err, TimeoutError) and not message:
        message = "no reply within the time limit"
    elif isinstance(err, SystemExit):
        message = f"the code tried to end the process: {err!r}"
    return Failure(
        boundary=boundary,
        kind=type(err).__name__,
        message=message[:2000],
        trace="".join(traceback.format_exception(err))[-4000:],
    )

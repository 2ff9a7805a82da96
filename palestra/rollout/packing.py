"""Pack trajectories to send them to another process, which is much faster than pickling their many objects.

The task's fields are not packed, since the receiver has the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeAlias, TypeVar

from palestra.engines.client import pack_floats, pack_ids, unpack_floats, unpack_ids
from palestra.rollout.types import Failure, Task, Trajectory, Turn
from palestra.types import Action, Call

# A call: (number of tokens that it shares with the previous call's prompt and reply, prompt length, reply length,
# finish, version, other fields if they differ from the default).
T = TypeVar("T")

_PackedCall: TypeAlias = tuple[int, int, int, str, int, tuple[Any, ...]]


def pack_trajectory(trajectory: Trajectory) -> bytes:
    """Pack a trajectory; raise an exception if the environment returned an object that cannot be pickled."""
    ids: list[
        int
    ] = []  # new tokens of all calls: replies, and the part of each prompt after the previous prompt and reply
    logprobs: list[float] = []
    previous: list[int] = []  # the previous call's prompt and reply
    turns = []
    for turn in trajectory.turns:
        action = turn.action
        calls = []
        for call in action.calls:
            prompt = call.prompt_ids
            known = len(previous) if prompt[: len(previous)] == previous else 0
            ids += prompt[known:]
            ids += call.ids
            logprobs += call.logprobs
            previous = prompt + call.ids
            calls.append(_pack_call(call, known))
        numbers = turn.reward, turn.terminated, turn.truncated, turn.agent_seconds, turn.env_seconds
        turns.append((turn.observation, action.text, calls, action.tool_calls, turn.info, numbers))
    failure = trajectory.failure
    packed = (
        pack_ids(ids),
        pack_floats(logprobs),
        turns,
        trajectory.final_observation,
        trajectory.success,
        pack_ids(trajectory.final_prompt),
        None if failure is None else asdict(failure),
        trajectory.task_id,
        (trajectory.attempts, trajectory.started, trajectory.seconds),
    )
    return pickle.dumps(packed, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_trajectory(task: Task, data: bytes) -> Trajectory:
    """Return the trajectory of `task` that `pack_trajectory` has packed."""
    packed = pickle.loads(data)  # noqa: S301  # sent by a worker process
    packed_ids, packed_logprobs, packed_turns, observation, success, final_prompt, failure, task_id, numbers = packed
    calls = _Calls(unpack_ids(packed_ids), unpack_floats(packed_logprobs))
    turns = []
    for seen, text, packed_calls, tool_calls, info, (reward, terminated, truncated, *seconds) in packed_turns:
        action = _new_action(text, tuple([calls.next(*call) for call in packed_calls]), tool_calls)
        turns.append(_new_turn(seen, action, reward, terminated, truncated, info, *seconds))
    return Trajectory(
        env_id=task.env_id,
        kwargs=task.kwargs,
        seed=task.seed,
        group=task.group,
        member=task.member,
        turns=tuple(turns),
        final_observation=observation,
        success=success,
        final_prompt=tuple(unpack_ids(final_prompt)),
        failure=None if failure is None else Failure(**failure),
        task_id=task_id,
        attempts=numbers[0],
        started=numbers[1],
        seconds=numbers[2],
        meta=task.meta,
    )


def _pack_call(call: Call, known: int) -> _PackedCall:
    usual = call.kind == "act" and call.split is None and call.prompt is None and call.usage is None
    rest = () if usual and len(call.logprobs) == len(call.ids) else (
        call.kind, call.split, call.prompt, call.usage, len(call.logprobs)
    )  # fmt: skip
    return known, len(call.prompt_ids), len(call.ids), call.finish, call.version, rest


def _constructor(data_class: type[T]) -> Callable[..., T]:
    """Return a function that creates an instance from the values of all fields, in order.

    It is three times as fast as the class's own constructor, which is slow for frozen dataclasses.
    """
    setters = [getattr(data_class, item.name).__set__ for item in fields(data_class)]  # type: ignore[arg-type]

    def create(*values: Any) -> T:
        instance = object.__new__(data_class)
        for setter, value in zip(setters, values):  # noqa: B905  # `strict` is slower, and tests compare the results
            setter(instance, value)
        return instance

    return create


_new_call, _new_action, _new_turn = _constructor(Call), _constructor(Action), _constructor(Turn)


class _Calls:
    """Recreates a trajectory's calls in order from their packed tokens."""

    def __init__(self, ids: list[int], logprobs: list[float]) -> None:
        self._ids = ids
        self._logprobs = logprobs
        self._start = 0  # index in `ids` of the first token of the current sample
        self._used = 0  # number of ids in the calls so far
        self._logprobs_used = 0

    def next(
        self, known: int, prompt_length: int, length: int, finish: str, version: int, rest: tuple[Any, ...]
    ) -> Call:
        if not known:
            self._start = self._used
        reply = self._start + prompt_length
        self._used = reply + length
        kind, split, prompt, usage, count = rest or ("act", None, None, None, length)
        first = self._logprobs_used
        self._logprobs_used += count
        return _new_call(
            self._ids[self._start : reply],
            self._ids[reply : self._used],
            self._logprobs[first : self._logprobs_used],
            finish,
            version,
            kind,
            split,
            prompt,
            usage,
        )

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

T = TypeVar("T")

# A call: (number of tokens that it shares with the previous call's prompt and reply, prompt length, reply length,
# finish, version, other fields if they differ from the default).
_PackedCall: TypeAlias = tuple[int, int, int, str, int, tuple[Any, ...]]


def pack_trajectory(trajectory: Trajectory) -> bytes:
    """Pack a trajectory; raise an exception if the environment returned an object that cannot be pickled."""
    # New tokens of all calls: replies, and the part of each prompt after the previous prompt and reply.
    ids: list[int] = []
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
    ids, logprobs = unpack_ids(packed_ids), unpack_floats(packed_logprobs)
    start = 0  # index in `ids` of the first token of the current sample
    used = used_logprobs = 0  # number of ids and log-probabilities in the calls so far
    turns = []
    for seen, text, packed_calls, tool_calls, info, (reward, terminated, truncated, *seconds) in packed_turns:
        calls = []
        for known, prompt_length, length, finish, version, rest in packed_calls:
            if not known:
                start = used
            reply = start + prompt_length
            used = reply + length
            kind, split, prompt, usage, count = rest or ("act", None, None, None, length)
            first, used_logprobs = used_logprobs, used_logprobs + count
            sampled, their_logprobs = ids[reply:used], logprobs[first:used_logprobs]
            calls.append(
                _new_call(ids[start:reply], sampled, their_logprobs, finish, version, kind, split, prompt, usage)
            )
        action = _new_action(text, tuple(calls), tool_calls)
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
    """Return a function that creates an instance of a frozen dataclass from the values of all fields, in order.

    A frozen dataclass sets each field with a slow function call. This function creates an instance of a class that is
    not frozen but has the same slots, and then changes the instance's class, which takes less than a third of the time.
    """
    names = [item.name for item in fields(data_class)]  # type: ignore[arg-type]
    arguments = ", ".join(names)
    assignments = "; ".join(f"self.{name} = {name}" for name in names)
    namespace: dict[str, Any] = {"data_class": data_class}
    exec(  # noqa: S102  # the names are those of the dataclass's fields
        f"class Unfrozen:\n"
        f"    __slots__ = {tuple(names)}\n"
        f"    def __init__(self, {arguments}): {assignments}\n"
        f"def create({arguments}):\n"
        f"    instance = Unfrozen({arguments})\n"
        f"    instance.__class__ = data_class\n"
        f"    return instance\n",
        namespace,
    )
    create: Callable[..., T] = namespace["create"]
    return create


_new_call, _new_action, _new_turn = _constructor(Call), _constructor(Action), _constructor(Turn)

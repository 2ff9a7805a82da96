"""Trajectories -> the same with token ids of a tokenizer, for whoever clones what another player wrote.

Ids that this tokenizer made are left as they are: what was sampled is what is learned. A player without a model left
no ids, and those of a model with another vocabulary say nothing here; their words are rendered through the chat
template, as the words of a model would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from palestra.agents import ChatAgent
from palestra.agents.base import AgentSession
from palestra.core import Env
from palestra.engines.scripted import ScriptedEngine
from palestra.rollout.samples import to_samples
from palestra.rollout.types import Trajectory
from palestra.types import Call, text_of

_ANY_LENGTH = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Readied:
    """Trajectories with ids, in the order they came; None for those that do not fit."""

    trajectories: list[Trajectory | None]
    rendered: int  # anew, from their words

    @property
    def too_long(self) -> int:
        return sum(t is None for t in self.trajectories)


class Transcriber:
    """Gives trajectories the ids of `tokenizer`, with `system` as the system prompt of those that are rendered."""

    def __init__(self, tokenizer: Any, *, system: str | None = None, window: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._window = window
        self._scripts: dict[Any, Sequence[str]] = {}
        engine = ScriptedEngine(self._scripts, tokenizer=tokenizer)
        self._chat = ChatAgent(engine, max_tokens=_ANY_LENGTH, system=system)

    async def ready(self, trajectories: Sequence[Trajectory]) -> Readied:
        """All of them with ids; those longer than the window are left out."""
        found: list[Trajectory | None] = []
        rendered = 0
        for trajectory in trajectories:
            own = self.owns(trajectory)
            rendered += not own
            done = _scored(trajectory) if own else await self.render(trajectory)
            longest = max(map(len, to_samples(done)))
            found.append(None if self._window is not None and longest > self._window else done)
        return Readied(trajectories=found, rendered=rendered)

    def owns(self, trajectory: Trajectory) -> bool:
        """Were all ids made by this tokenizer? Then they read as the first observation does."""
        calls = [turn.action.calls for turn in trajectory.turns]
        if not all(calls) or not all(call.prompt_ids and call.ids for several in calls for call in several):
            return False
        tokenizer = self._tokenizer
        first = calls[0][0].prompt_ids
        if max(map(max, (first, *(call.ids for several in calls for call in several)))) >= len(tokenizer):
            return False
        shown = tokenizer.decode(first, skip_special_tokens=False)
        words = tokenizer.encode(text_of(trajectory.turns[0].observation).strip(), add_special_tokens=False)
        return tokenizer.decode(words, skip_special_tokens=False).strip() in shown

    async def render(self, trajectory: Trajectory) -> Trajectory:
        """The conversation through the chat template, the player's words in the place of a model's."""
        session: AgentSession = self._chat.start(cast("Env", None))  # a chat looks at observations alone
        self._scripts[session] = [turn.action.text for turn in trajectory.turns]
        turns = []
        info: dict[str, Any] = {}
        try:
            for turn in trajectory.turns:
                said = await session.act(turn.observation, info)
                turns.append(replace(turn, action=replace(turn.action, calls=said.calls)))
                info = dict(turn.info)
        finally:
            session.close()
            del self._scripts[session]
        return replace(trajectory, turns=tuple(turns))


def _scored(trajectory: Trajectory) -> Trajectory:
    """With a log-probability for each id; where a server gave none, 0, which no supervised loss reads."""
    if all(len(call.logprobs) == len(call.ids) for turn in trajectory.turns for call in turn.action.calls):
        return trajectory

    def filled(call: Call) -> Call:
        return call if len(call.logprobs) == len(call.ids) else replace(call, logprobs=[0.0] * len(call.ids))

    turns = [
        replace(turn, action=replace(turn.action, calls=tuple(map(filled, turn.action.calls))))
        for turn in trajectory.turns
    ]
    return replace(trajectory, turns=tuple(turns))

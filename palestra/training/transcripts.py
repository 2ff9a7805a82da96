"""Tokenize stored trajectories, so that a model can be trained on other players' episodes.

Token ids that the same tokenizer produced are left unchanged. Trajectories from players without a model, or from models
with a different vocabulary, are rendered with the chat template and tokenized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from palestra.agents import AgentSettings, ChatAgent
from palestra.agents.base import AgentSession
from palestra.core import Env
from palestra.engines.scripted import ScriptedEngine
from palestra.rollout.samples import to_samples
from palestra.rollout.types import Trajectory
from palestra.types import Call, text_of

_UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedTrajectories:
    """Trajectories with token ids in their original order; None for those that exceed the context window."""

    trajectories: list[Trajectory | None]
    rendered: int  # number of trajectories that were rendered with the chat template

    @property
    def too_long(self) -> int:
        return sum(t is None for t in self.trajectories)


class Transcriber:
    """Adds token ids from `tokenizer` to trajectories, which are rendered with the prompts in `settings`."""

    def __init__(self, tokenizer: Any, *, settings: AgentSettings | None = None, window: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._window = window
        self._scripts: dict[Any, Sequence[str]] = {}
        engine = ScriptedEngine(self._scripts, tokenizer=tokenizer)
        prompts = (settings or AgentSettings()).chat_options(tokenizer)
        self._chat = ChatAgent(engine, max_tokens=_UNLIMITED, **{**prompts, "max_context": None})

    async def tokenize(self, trajectories: Sequence[Trajectory]) -> TokenizedTrajectories:
        """Return all trajectories with token ids, and None for those that exceed the context window."""
        tokenized: list[Trajectory | None] = []
        rendered = 0
        for trajectory in trajectories:
            own = self.owns(trajectory)
            rendered += not own
            complete = _with_logprobs(trajectory) if own else await self.render(trajectory)
            longest = max(map(len, to_samples(complete)))
            tokenized.append(None if self._window is not None and longest > self._window else complete)
        return TokenizedTrajectories(trajectories=tokenized, rendered=rendered)

    def owns(self, trajectory: Trajectory) -> bool:
        """Return whether this tokenizer produced the token ids, by decoding those in the first observation."""
        calls = [turn.action.calls for turn in trajectory.turns]
        if not all(calls) or not all(call.prompt_ids and call.ids for several in calls for call in several):
            return False
        tokenizer = self._tokenizer
        first = calls[0][0].prompt_ids
        if max(map(max, (first, *(call.ids for several in calls for call in several)))) >= len(tokenizer):
            return False
        prompt = tokenizer.decode(first, skip_special_tokens=False)
        # Compare only the first paragraph, because the agent may omit a later one that describes the tools.
        task = text_of(trajectory.turns[0].observation).strip().partition("\n\n")[0]
        ids = tokenizer.encode(task, add_special_tokens=False)
        return tokenizer.decode(ids, skip_special_tokens=False).strip() in prompt

    async def render(self, trajectory: Trajectory) -> Trajectory:
        """Render the conversation with the chat template, using the player's actions as the model's replies."""
        session: AgentSession = self._chat.start(cast("Env", None))  # a chat session does not use the env
        self._scripts[session] = [turn.action.text for turn in trajectory.turns]
        turns = []
        info: dict[str, Any] = {}
        try:
            for turn in trajectory.turns:
                action = await session.act(turn.observation, info)
                turns.append(replace(turn, action=replace(turn.action, calls=action.calls)))
                info = dict(turn.info)
        finally:
            session.close()
            del self._scripts[session]
        return replace(trajectory, turns=tuple(turns))


def _with_logprobs(trajectory: Trajectory) -> Trajectory:
    """Set missing log-probs to 0, since supervised losses do not use them."""
    if all(len(call.logprobs) == len(call.ids) for turn in trajectory.turns for call in turn.action.calls):
        return trajectory

    def filled(call: Call) -> Call:
        return call if len(call.logprobs) == len(call.ids) else replace(call, logprobs=[0.0] * len(call.ids))

    turns = [
        replace(turn, action=replace(turn.action, calls=tuple(map(filled, turn.action.calls))))
        for turn in trajectory.turns
    ]
    return replace(trajectory, turns=tuple(turns))

"""Episodes of a scripted player, in which the model that imitates it may play some of the turns (DAgger)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from palestra.agents import AgentSettings, ChatAgent, FullHistory, Summary
from palestra.agents.base import Agent, AgentSession
from palestra.conformance.rates import Player, next_action
from palestra.core import Env
from palestra.engines.base import Completion, Engine, Sampling
from palestra.engines.scripted import ScriptedEngine
from palestra.rollout import RolloutResult
from palestra.rollout.samples import TrainingSample, to_samples
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.failures import check_finished
from palestra.types import Action, Observation

SCRIPTED = -1  # version of the weights in calls that no model answered


class Demonstrator(Agent):
    """Agent that plays a scripted player's actions, tokenized as if they were a model's replies.

    With `model`, this agent's model plays a random fraction of `own_actions` of the turns, with the agent's sampling
    parameters. `imitated_turns` returns which turns of an episode are the scripted player's.
    """

    def __init__(
        self,
        tokenizer: Any,
        player: Player,
        *,
        max_tokens: int,
        settings: AgentSettings | None = None,
        model: ChatAgent | None = None,
        own_actions: float = 0.0,
    ) -> None:
        settings = settings or AgentSettings()
        self.player = player
        self.own_actions = own_actions if model is not None else 0.0
        self._format = "Action: {}" if settings.style == "react" else "{}"
        self._scripts: dict[Any, Callable[[Any], str]] = {}  # keyed by conversation
        engine: Engine = ScriptedEngine(self._scripts, tokenizer=tokenizer, blind=True)
        engine.version = SCRIPTED
        self._mixed = None if model is None else _MixedEngine(engine, model)
        policy = settings.context_policy()
        self._chat = ChatAgent(
            self._mixed or engine,
            max_tokens=max(64, max_tokens),
            context=FullHistory() if isinstance(policy, Summary) else policy,  # a scripted player writes no summaries
            **settings.chat_options(tokenizer),
        )

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        inner = self._chat.start(env, seed=seed)
        self._scripts[inner] = lambda _: self._format.format(next_action(env, self.player))
        if self._mixed is None:
            return _Demonstration(inner, self._scripts)
        rng = Random(child_seed(seed or 0, "own actions"))
        return _Mixture(inner, self._scripts, self._mixed, lambda: rng.random() < self.own_actions)


class _Demonstration(AgentSession):
    reads_end = True

    def __init__(self, inner: AgentSession, scripts: dict[Any, Callable[[Any], str]]) -> None:
        self._inner = inner
        self._scripts = scripts

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        return await self._inner.act(observation, info)

    def next_prompt(self, observation: Observation, info: dict[str, Any]) -> list[int]:
        return self._inner.next_prompt(observation, info)

    def close(self) -> None:
        self._scripts.pop(self._inner, None)
        self._inner.close()


class _Mixture(_Demonstration):
    """A demonstration in which the model plays the turns for which `draw` returns True."""

    def __init__(
        self,
        inner: AgentSession,
        scripts: dict[Any, Callable[[Any], str]],
        engine: _MixedEngine,
        draw: Callable[[], bool],
    ) -> None:
        super().__init__(inner, scripts)
        self._engine = engine
        self._draw = draw

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        (self._engine.own.add if self._draw() else self._engine.own.discard)(self._inner)
        return await super().act(observation, info)

    def close(self) -> None:
        self._engine.own.discard(self._inner)
        super().close()


class _MixedEngine(Engine):
    """Engine that takes the replies in the conversations in `own` from a model, and the others from a script."""

    def __init__(self, scripted: Engine, agent: ChatAgent) -> None:
        self.tokenizer = scripted.tokenizer
        self.max_context = agent.engine.max_context
        self.own: set[Hashable] = set()
        self._scripted = scripted
        self._model = agent.engine
        self._sampling = agent.sampling

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        if conversation not in self.own:
            return await self._scripted.generate(prompt_ids, sampling, conversation=conversation)
        own = replace(
            self._sampling,
            max_tokens=min(self._sampling.max_tokens, sampling.max_tokens),
            stop_ids=sampling.stop_ids,
            seed=sampling.seed,
        )
        return await self._model.generate(prompt_ids, own, conversation=conversation)

    def forget(self, conversation: Hashable) -> None:
        self._scripted.forget(conversation)
        self._model.forget(conversation)


def check_demonstrations(result: RolloutResult, player: Player) -> None:
    """Raise an error that names the fix if the scripted player finished no episode or the rollout stopped early."""
    method = "expert_action" if player == "expert" else "sample_random_action"
    hint = f". Check {method} of the environment, or use --warm-start 0"
    check_finished(result, f"the {player} player of the warm start", hint=hint)


def imitated_turns(trajectory: Trajectory) -> list[float]:
    """Return the weight of each turn in imitation: 1 if a scripted player played it, and 0 if the model did."""
    return [float(all(call.version == SCRIPTED for call in turn.action.calls)) for turn in trajectory.turns]


def samples_with_end(trajectory: Trajectory, episode: int) -> list[TrainingSample]:
    """Return a trajectory's samples; the last one also contains the observation after the last action, if it fits."""
    samples = to_samples(trajectory, episode)
    last, prompt = samples[-1], list(trajectory.final_prompt)
    if prompt[: len(last)] == last.ids:
        rest = prompt[len(last) :]
        last.ids.extend(rest)
        last.mask.extend([0] * len(rest))
        last.logprobs.extend([0.0] * len(rest))
        last.turn_index.extend([-1] * len(rest))
    return samples

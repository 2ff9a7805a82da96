"""Evaluate models on Palestra environments with Inspect.

    from inspect_ai import eval
    from palestra.integrations.inspect_ai import env_task

    eval(env_task("game:Wordle-v0-easy", tasks=100), model="openai/gpt-4o")

A suite works too: `env_task(palestra.evals.load_suite("suite:games"))`. Each sample is one task. The solver plays the
episode; the scores are the episode's success and the sum of its rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from palestra.integrations.episodes import task_seeds
from palestra.optional import require
from palestra.registry import make
from palestra.rollout.types import Task as EpisodeTask
from palestra.types import finite_reward, text_of

if TYPE_CHECKING:
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
else:
    require("inspect_ai", extra="inspect")
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver

__all__ = ["env_score", "env_task", "palestra", "play_env"]

RESULT = "palestra"  # key of the episode's result in the sample's store


class Suite(Protocol):
    """A list of tasks, such as `palestra.evals.Suite`."""

    def tasks(self) -> list[EpisodeTask]: ...


def env_task(
    env: str | Sequence[str] | Suite, *, tasks: int = 100, seed: int = 0, name: str | None = None, **kwargs: Any
) -> Task:
    """Return an Inspect task for one or more environments, or for a suite.

    `tasks`, `seed` and `kwargs` (passed to `palestra.make`) apply to environments; a suite contains its own.
    """
    if isinstance(env, Sequence):
        seeds = task_seeds(env, tasks, seed)
        episodes = [EpisodeTask(env_id=env_id, seed=task_seed, kwargs=kwargs) for env_id, task_seed in seeds]
        title = env if isinstance(env, str) else "palestra"
    else:
        episodes = env.tasks()
        title = str(getattr(env, "name", "palestra"))
    samples = [
        Sample(
            id=f"{index}:{episode.env_id}",
            input=f"{episode.env_id}, seed {episode.seed}",  # the solver replaces it with the environment's prompt
            metadata={
                "env": episode.env_id,
                "seed": episode.seed,
                "kwargs": dict(episode.kwargs),
                "options": dict(episode.options),
            },
        )
        for index, episode in enumerate(episodes)
    ]
    return Task(
        dataset=MemoryDataset(samples, name=title), solver=play_env(), scorer=env_score(), name=name or _name(title)
    )


@task
def palestra(env: str = "game:GuessTheNumber-v0-easy", tasks: int = 100, seed: int = 0) -> Task:
    """Return the task for `inspect eval palestra/integrations/inspect_ai.py -T env=ID`."""
    return env_task(env, tasks=tasks, seed=seed)


@solver
def play_env() -> Solver:
    """Play the sample's environment: the model's replies are the actions."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        task_data = state.metadata
        env = make(task_data["env"], **task_data["kwargs"])
        rewards: list[float] = []
        try:
            observation, _ = await env.areset(seed=task_data["seed"], options=task_data["options"] or None)
            state.messages = [*state.messages[:-1], ChatMessageUser(content=text_of(observation))]
            while True:
                state = await generate(state)
                step = await env.astep(state.output.completion)
                rewards.append(finite_reward(step.reward))
                over = step.terminated or step.truncated
                if over or state.completed:  # Inspect completes a sample that exceeds its message or token limit
                    break
                state.messages.append(ChatMessageUser(content=text_of(step.observation)))
        finally:
            env.close()
        success = over and bool(step.info.get("success", step.terminated and step.reward > 0))
        state.store.set(RESULT, {"success": success, "reward": sum(rewards), "turns": len(rewards)})
        return state

    return solve


@scorer(
    metrics={"success": [mean(), stderr()], "reward": [mean(), stderr()], "turns": [mean()]},
)
def env_score() -> Scorer:
    """Score the episode by the environment's own success and rewards."""

    async def score(state: TaskState, target: Target) -> Score:
        del target
        result = state.store.get(RESULT) or {"success": False, "reward": 0.0, "turns": 0}
        return Score(
            value={"success": float(result["success"]), "reward": result["reward"], "turns": result["turns"]},
            answer=state.output.completion,
        )

    return score


def _name(title: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in title)

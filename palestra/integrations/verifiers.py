"""Use Palestra environments in verifiers 0.1 and prime-rl, as a MultiTurnEnv.

    vf-eval palestra.integrations.verifiers -m MODEL -a '{"env": "game:Wordle-v0-easy"}'

`load_environment` is the function that verifiers calls. The reward is the sum of the environment's rewards; success is
a metric. For verifiers 0.2 and later, see `palestra.integrations.verifiers_v1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palestra.integrations.episodes import task_seeds
from palestra.optional import require
from palestra.registry import make, with_split
from palestra.types import finite_reward, text_of

if TYPE_CHECKING:
    import verifiers as vf
    from datasets import Dataset
else:
    vf = require("verifiers", extra="verifiers")
    Dataset = require("datasets", extra="data").Dataset

__all__ = ["PalestraEnv", "load_environment"]


class PalestraEnv(vf.MultiTurnEnv):
    """Plays the environment named in the dataset's row; the model's replies are the actions.

    A failure of the environment is an error of the rollout (`vf.InfraError`), not a reward of 0.
    """

    async def setup_state(self, state: vf.State) -> None:
        info = state["info"]
        try:
            env = make(info["env"], **(info.get("env_kwargs") or {}))
            state["palestra_env"] = env
            observation, _ = await env.areset(seed=info["seed"])
        except Exception as err:
            raise vf.InfraError(f"{info['env']} failed: {err}") from err
        state["env_reward"], state["env_success"] = 0.0, 0.0
        # The dataset's prompt is a placeholder, because creating every prompt in advance would be slow.
        state["prompt"] = [*state["prompt"][:-1], vf.UserMessage(content=text_of(observation))]

    async def env_response(self, messages: vf.Messages, state: vf.State, **_: Any) -> vf.Messages:
        try:
            step = await state["palestra_env"].astep(_text(messages[-1]))
            state["env_reward"] += finite_reward(step.reward)
        except Exception as err:
            raise vf.InfraError(f"{state['info']['env']} failed: {err}") from err
        reply = [vf.UserMessage(content=text_of(step.observation))]
        if step.terminated or step.truncated:
            state["env_success"] = float(bool(step.info.get("success", step.terminated and step.reward > 0)))
            state["final_env_response"] = reply
        return reply

    @vf.cleanup
    async def close_env(self, state: vf.State) -> None:
        env = state.pop("palestra_env", None)
        if env is not None:
            env.close()


def load_environment(
    env: str | Sequence[str] = "game:GuessTheNumber-v0-easy",
    num_examples: int = 100,
    num_eval_examples: int = 20,
    seed: int = 0,
    eval_seed: int = 1,
    system_prompt: str | None = None,
    max_turns: int = -1,
    **env_kwargs: Any,
) -> vf.Environment:
    """Return a verifiers environment for one or more Palestra environments.

    `env_kwargs` are passed to `palestra.make`. Where an environment has splits, training uses the tasks of `train` and
    evaluation those of `test`.
    """
    return PalestraEnv(
        dataset=_dataset(env, num_examples, seed, env_kwargs, "train"),
        eval_dataset=_dataset(env, num_eval_examples, eval_seed, env_kwargs, "test"),
        rubric=vf.Rubric(funcs=[env_reward, env_success], weights=[1.0, 0.0]),
        system_prompt=system_prompt,
        max_turns=max_turns,
    )


async def env_reward(state: vf.State) -> float:
    """Return the sum of the environment's rewards."""
    return float(state.get("env_reward", 0.0))


async def env_success(state: vf.State) -> float:
    """Return 1 if the episode was successful."""
    return float(state.get("env_success", 0.0))


def _dataset(env: str | Sequence[str], tasks: int, seed: int, env_kwargs: dict[str, Any], split: str) -> Dataset:
    rows = [
        {
            "question": f"{name}, seed {task}",
            "answer": "",
            "info": {"env": name, "seed": task, "env_kwargs": with_split(name, env_kwargs, split) or None},
        }
        for name, task in task_seeds(env, tasks, seed)
    ]
    return Dataset.from_list(rows)


def _text(message: Any) -> str:
    content = message["content"] if isinstance(message, dict) else message.content
    if isinstance(content, list):
        return "".join(part["text"] if isinstance(part, dict) else part.text for part in content)
    return content or ""

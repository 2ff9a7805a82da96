"""Play episodes with AgentGym's own clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import palestra
from palestra.registry.agentgym_tasks import TASKS, family_envs
from tests.server.servers import Server, serving

# AgentGym family -> (client class, environments, task number)
FAMILIES = {
    "babyai": ("BabyAIEnvClient", ["babyai:All-v0"], 47),
    "textcraft": ("TextCraftEnvClient", ["textcraft:All-v0"], 5),
    "webshop": ("WebshopEnvClient", ["webshop:Shop-v0"], 4),
    "searchqa": ("SearchQAEnvClient", ["search:World-v0-1hop"], 3),
    "wordle": ("WordleEnvClient", ["game:Wordle-v0-hard"], 3),
    "sqlgym": ("SqlGymEnvClient", ["sql:Shop-v0-easy", "sql:Library-v0-easy"], 2),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*(env for _, envs, _ in FAMILIES.values() for env in envs)) as server:
        yield server


@pytest.mark.parametrize("family", FAMILIES)
def test_client_plays_an_episode(server: Server, family: str) -> None:
    import agentenv.envs  # type: ignore[import-not-found, unused-ignore]

    name, envs, number = FAMILIES[family]
    client: Any = getattr(agentenv.envs, name)(env_server_base=f"{server.url}/agentgym/{family}", data_len=100)
    client.reset(number)
    assert client.observe()
    task = TASKS[family][1](family_envs(envs, family), number)
    with palestra.make(task.env, **task.kwargs) as env:
        env.reset(seed=task.seed, options=task.options)
        done = False
        while not done:
            action = str(env.expert_action())
            done = env.step(action).done
            output = client.step(reply(family, action))
            assert output.done == done
    assert output.reward == 1.0


def reply(family: str, action: str) -> str:
    """Return a reply with the expert's action in the format that AgentGym's prompts require."""
    if family == "wordle":
        action = " ".join(action.removeprefix("\\boxed{").removesuffix("}"))
    if family == "sqlgym" and action.startswith("<answer>"):
        action = f"```sql\n{action.removeprefix('<answer>').removesuffix('</answer>')}\n```"
    return action if family == "searchqa" else f"Thought: this is next.\nAction: {action}"

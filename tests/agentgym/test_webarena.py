"""Play an episode with AgentGym's own client for WebArena."""

from __future__ import annotations

from typing import Any

import requests

from palestra.registry.agentgym_tasks import Task
from tests.server.protocols.test_agentgym import expert
from tests.server.servers import serving

ENV, NUMBER = "web:Map-v0", 3


def test_client_plays_an_episode() -> None:
    from agentenv.envs import WebarenaEnvClient  # type: ignore[import-not-found, unused-ignore]

    with serving(ENV, workers=1) as server, server.client() as other:
        address = f"{server.url}/agentgym/webarena"
        client: Any = WebarenaEnvClient(address, data_len=10)
        steps = expert(other, Task(ENV, NUMBER, {}, {}))
        prompt, _, _ = next(steps)
        first = client.reset(NUMBER)
        goal = first["object"]
        assert first["sites"] == ["map.test"]
        assert f"\n\nTask: {goal}\n\n{first['observation']}\nURL: http://map.test/" in prompt
        nodes = requests.get(f"{address}/observation_metadata?env_idx={client.env_id}", timeout=60).json()
        assert nodes["text"]["obs_nodes_info"]["1"]["text"].startswith("[1] RootWebArea")
        assert str(client.observe()).endswith(f"OBJECTIVE: {goal}\nPREVIOUS ACTION: None")
        for action, observation, _ in steps:
            out = client.step(f"In summary, the next action I will perform is ```{action}```")
            if not out.done:
                assert out.state == client.observe()
                assert out.state == f"OBSERVATION:\n{observation}\nOBJECTIVE: {goal}\nPREVIOUS ACTION: {action}"
                assert out.reward == 0
        assert (out.done, out.reward) == (True, 1.0)
        assert client.close() == {"closed": "closed"}

"""Play an episode with OpenEnv's client and print the results, in an interpreter with OpenEnv installed."""

import asyncio
import json
import sys

from openenv.core import GenericEnvClient  # type: ignore[import-not-found, unused-ignore]


def main(base: str, seed: int, actions: list[str]) -> None:
    with GenericEnvClient(base_url=base).sync() as env:
        results = []
        result = env.reset(seed=seed, episode_id="mine")
        results.append([result.observation["text"], result.reward, result.done])
        for action in actions:
            result = env.step({"action": action})
            results.append([result.observation["text"], result.reward, result.done])
        state = env.state()
        try:
            env.step({"action": "once more"})
        except RuntimeError as err:
            error = str(err)
    print(json.dumps({"results": results, "state": state, "error": error, "tools": asyncio.run(tools(base))}))


async def tools(base: str) -> list[str]:
    from openenv.core.mcp_client import MCPToolClient  # type: ignore[import-not-found, unused-ignore]

    client = MCPToolClient(base_url=base)
    client.use_production_mode = True
    names = [tool.name for tool in await client.list_tools()]
    await client.close()
    return names


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))

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
    output = {"results": results, "state": state, "error": error, "tools": asyncio.run(tools(base))}
    print(json.dumps({**output, "calls": asyncio.run(tool_calls(base, seed, actions)), "validation": validate(base)}))


async def tools(base: str) -> list[str]:
    from openenv.core.mcp_client import MCPToolClient  # type: ignore[import-not-found, unused-ignore]

    client = MCPToolClient(base_url=base)
    client.use_production_mode = True
    names = [tool.name for tool in await client.list_tools()]
    await client.close()
    return names


async def tool_calls(base: str, seed: int, actions: list[str]) -> list[str]:
    """Play the episode with tool calls, and return the texts and the error of an invalid call."""
    from openenv.core.mcp_client import MCPToolClient

    async with MCPToolClient(base_url=base) as client:
        names = [tool.name for tool in await client.list_tools()]
        texts = [await client.call_tool("reset", seed=seed)]
        texts += [await client.call_tool("step", action=action) for action in actions]
        try:
            await client.call_tool("jump")
        except RuntimeError as err:
            texts.append(str(err))
    return [*names, *texts]


def validate(base: str) -> list[str]:
    """Return the criteria of `openenv validate --url` that are not met."""
    from openenv.cli._validation import (  # type: ignore[import-not-found, unused-ignore]
        validate_running_environment,
    )

    report = validate_running_environment(base)
    assert report["criteria"]
    return [criterion["id"] for criterion in report["criteria"] if not criterion["passed"]]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))

"""Test environments as MCP servers, with the SDK's client and with McpTools, over both transports."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

import palestra
from palestra.cli import main
from palestra.errors import BadValue, ToolFailed, UnknownEnv, UnknownKeyword
from palestra.integrations.mcp import create_server
from palestra.tools.mcp import McpTools
from palestra.types import text_of

GAME = "game:GuessTheNumber-v0-easy"


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def test_episodes_through_the_sdk_client_match_direct_ones() -> None:
    """Compare every observation, reward and flag with the same episode in a local environment."""

    async def played() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "palestra", "mcp-serve", GAME])
        async with Client(server) as client:
            assert GAME in str(client.instructions)
            assert [tool.name for tool in (await client.list_tools()).tools] == ["reset", "step"]
            early = await client.call_tool("step", {"action": "x"})
            assert early.is_error
            assert "call reset first" in text(early)
            with palestra.make(GAME) as env:
                for seed in (3, 4):
                    observation, info = env.reset(seed=seed)
                    first = await client.call_tool("reset", {"seed": seed})
                    assert text(first) == text_of(observation)
                    assert first.structured_content["info"]["seed"] == info["seed"] == seed
                    done = False
                    while not done:
                        action = env.expert_action()
                        step = env.step(str(action))
                        reply = await client.call_tool("step", {"action": action})
                        content = reply.structured_content
                        assert text(reply).startswith(text_of(step.observation))
                        assert (content["reward"], content["terminated"], content["truncated"]) == step[1:4]
                        done = step.done
                    assert content["info"]["success"] is True
                    assert text(reply).endswith("[reward 1; the episode is over: solved]")
                    over = await client.call_tool("step", {"action": "x"})
                    assert over.is_error
                    assert "call reset to start another" in text(over)
            for wrong in ({}, {"action": 5}, {"actoin": "x"}):
                assert (await client.call_tool("step", wrong)).is_error
            assert (await client.call_tool("reset", {"seed": -1})).is_error
            again = await client.call_tool("reset", {})
            assert not again.is_error

    asyncio.run(played())


def test_an_environment_as_a_tool_of_another() -> None:
    """Use an environment, served over MCP, as a tool in another environment."""
    inner = McpTools([sys.executable, "-m", "palestra", "mcp-serve", GAME, "--seed", "5"])
    with palestra.make("game:Sudoku-v0-easy", tools=[inner]) as env:
        env.reset(seed=1)
        step = env.step('<tool_call>{"name": "reset", "arguments": {}}</tool_call>')
        with palestra.make(GAME) as other:
            assert text_of(step.observation) == text_of(other.reset(seed=5)[0])
        for guess in ("1", "2"):
            call = json.dumps({"name": "step", "arguments": {"action": f"\\boxed{{{guess}}}"}})
            assert "Turn" in text_of(env.step(f"<tool_call>{call}</tool_call>").observation)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [sys.executable, "-m", "palestra", "mcp-serve", GAME, "--http", "0", "--set", "max_turns=6"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    yield process.stderr.readline().split()[3]
    process.send_signal(signal.SIGINT)
    process.wait(timeout=120)
    process.stderr.close()


def connect(address: str) -> McpTools:
    for _ in range(1200):  # the server prints its address before it listens
        try:
            tools = McpTools(address, timeout=120)
            assert len(tools.tools) == 2
            return tools
        except ToolFailed:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


def test_many_clients_over_http(address: str) -> None:
    with palestra.make(GAME) as env:
        below = [
            seed for seed in range(40) if not (env.reset(seed=seed) and env.step("\\boxed{1}").done)
        ]  # seeds for which 1 is not the hidden number
    template = connect(address)
    with closing(template.open(seed=0)) as one, closing(template.open(seed=0)) as two:
        (reset, step), (other_reset, _) = one.tools, two.tools
        prompt = str(reset.run({"seed": below[0]}).text)
        assert "You have 6 turns." in prompt
        first = prompt.split('[episode "')[1].split('"')[0]
        second = str(other_reset.run({"seed": below[1]}).text).split('[episode "')[1].split('"')[0]
        assert first != second
        for turn in range(1, 4):  # each of the interleaved episodes counts its own turns
            for episode in (first, second):
                reply = str(step.run({"episode": episode, "action": "\\boxed{1}"}).text)
                assert f"Turn {turn} of 6" in reply
        unknown = step.run({"episode": "unknown", "action": "x"})
        assert not unknown.ok
        assert "no episode" in str(unknown.text)
        assert not step.run({"action": "x"}).ok

    async def together() -> list[Any]:
        async with Client(address) as client:
            return await asyncio.gather(*(client.call_tool("reset", {"seed": n}) for n in range(300)))

    keys = {result.structured_content["episode"] for result in asyncio.run(together())}
    assert len(keys) == 300  # more episodes than the server stores; the oldest are dropped
    template.close()


def test_a_server_in_this_process() -> None:
    async def played() -> str:
        async with Client(create_server(GAME, seed=9, tools=["search"])) as client:
            await client.call_tool("reset", {})
            return text(await client.call_tool("step", {"action": "<search>observatory</search>"}))

    assert asyncio.run(played()).startswith("Doc 1(Title: ")


def test_usage_errors_are_reported_before_serving(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownKeyword, match="max_turns"):
        create_server(GAME, max_turn=3)
    with pytest.raises(UnknownEnv):
        create_server("game:Sudoku-v0-hardest")
    with pytest.raises(BadValue, match="search"):
        create_server(GAME, tools=["serach"])
    assert main(["mcp-serve", GAME, "--set", "max_turn=3"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("palestra: ")
    assert printed.out == ""


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"hangs": "step"}, "step took longer than 0.02 seconds"),
        ({"hangs": "reset"}, "reset took longer than 0.02 seconds"),
        ({"exits": "step"}, "step tried to end the process"),
        ({"reward": "nan"}, "must be a finite number"),
    ],
    ids=str,
)
def test_an_environment_that_hangs_or_exits_is_reported(kwargs: dict[str, Any], message: str) -> None:
    env = "tests.rollout.test_faulty_envs:OneStep"
    limits: dict[str, Any] = {"step_timeout": 600.0, "reset_timeout": 600.0}  # a loaded machine exceeds short limits
    if "hangs" in kwargs:
        limits[f"{kwargs['hangs']}_timeout"] = 0.02

    async def failed() -> str:
        async with Client(create_server(env, **limits, **kwargs)) as client:
            reply = await client.call_tool("reset", {})
            if not reply.is_error:
                reply = await client.call_tool("step", {"action": "yes"})
            assert reply.is_error
            return text(reply)

    assert message in asyncio.run(failed())

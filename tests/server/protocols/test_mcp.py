"""Test Palestra's MCP server with the official client, Palestra's client and raw requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import palestra
from palestra.tools.mcp import McpTools
from tests.server.bad_envs import TRICKY
from tests.server.servers import Client, Reply, Server, serving, until

CRAFT = "textcraft:Depth1-v0"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(CRAFT, TRICKY) as server:
        yield server


class RawClient:
    """MCP client that sends raw requests."""

    def __init__(self, client: Client, env: str = TRICKY) -> None:
        self.client = client
        self.path = f"/mcp/{env}"
        self.session = ""
        self.count = 0

    def send(self, method: str, params: Any = None, **more: Any) -> Reply:
        self.count += 1
        body = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params or {}, **more}
        headers = {"Content-Type": "application/json"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        return self.client.send("POST", self.path, json.dumps(body).encode(), headers)

    def initialize(self) -> Reply:
        reply = self.send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        self.session = reply.headers["mcp-session-id"]
        return reply

    def call(self, name: str, arguments: Any = None, **more: Any) -> Any:
        return self.send("tools/call", {"name": name, "arguments": arguments or {}}, **more).data

    def end(self) -> Reply:
        return self.client.send("DELETE", self.path, None, {"Mcp-Session-Id": self.session})


def test_official_client(server: Server) -> None:
    async def played() -> None:
        from mcp import Client as Official

        with palestra.make(CRAFT) as env:
            first, _ = env.reset(seed=3)
            async with Official(f"{server.url}/mcp/{CRAFT}") as client:
                tools = (await client.list_tools()).tools
                assert [tool.name for tool in tools] == ["reset", "step", "render", "close"]
                started: Any = await client.call_tool("reset", {"seed": 3})
                assert started.content[0].text == first
                while True:
                    action = str(env.expert_action())
                    step = env.step(action)
                    response: Any = await client.call_tool("step", {"action": action})
                    assert response.content[0].text == step.observation
                    assert response.structured_content["reward"] == step.reward
                    if step.done:
                        break
                assert response.content[-1].text == "[reward 1; the episode is over: solved]"
                assert server.number("sessions") == 1

    asyncio.run(played())
    until(lambda: server.number("sessions") == 0)  # closing the session also closes the environment


def test_our_client(server: Server) -> None:
    with palestra.make(CRAFT) as env, closing(McpTools(f"{server.url}/mcp/{CRAFT}", timeout=30).open(seed=0)) as tools:
        named = {tool.name: tool for tool in tools.tools}
        first, _ = env.reset(seed=4)
        assert named["reset"].run({"seed": 4}).text == first
        done = False
        while not done:
            action = str(env.expert_action())
            step = env.step(action)
            reply = str(named["step"].run({"action": action}).text)
            assert reply.startswith(str(step.observation))
            done = step.done
        assert reply.endswith("[reward 1; the episode is over: solved]")
    until(lambda: server.number("sessions") == 0)


def test_sessions_are_independent_and_end(server: Server) -> None:
    with server.client() as client:
        one, two = RawClient(client), RawClient(client)
        hello = one.initialize().data["result"]
        two.initialize()
        assert hello["protocolVersion"] == "2025-06-18"
        assert one.send("ping").data["result"] == {}
        assert server.number("sessions") == 0  # the first reset creates the environment
        assert one.call("step", {"action": "a"})["result"]["isError"] is True
        assert one.call("reset", {"seed": 1})["result"]["content"][0]["text"] == "started 1"
        assert two.call("reset", {"seed": 2})["result"]["content"][0]["text"] == "started 2"
        assert one.call("step", {"action": "a"})["result"]["content"][0]["text"] == "a"
        assert two.call("step", {"action": "b"})["result"]["content"][0]["text"] == "b"
        picture = two.call("step", {"action": "image 1"})["result"]["content"]
        assert [block["type"] for block in picture] == ["text", "image"]
        assert one.call("render")["result"]["content"][0]["text"] == "a"
        assert one.call("close")["result"]["structuredContent"] == {"closed": True}
        assert one.call("close")["result"]["structuredContent"] == {"closed": False}
        assert one.call("reset", {"seed": 9})["result"]["isError"] is False
        assert server.number("sessions") == 2
        assert (one.end().status, one.end().status) == (200, 404)
        assert one.send("tools/list").status == 404
        two.end()
    assert server.number("sessions") == 0


def test_repeated_request_is_one_step(server: Server) -> None:
    with server.client() as client:
        wire = RawClient(client)
        wire.initialize()
        wire.call("reset", {"seed": 1})
        responses = [wire.call("step", {"action": "a"}, id="again") for _ in range(3)]
        assert responses[0] == responses[1] == responses[2]
        assert wire.call("step", {"action": "b"})["result"]["content"][0]["text"] == "a b"
        wire.end()


def test_session_continues_after_a_failure(server: Server) -> None:
    with server.client() as client:
        wire = RawClient(client)
        wire.initialize()
        wire.call("reset", {"seed": 1})
        for action in ("raise", "nan", "reward none"):
            broken = wire.call("step", {"action": action})["result"]
            assert (broken["isError"], broken["structuredContent"]["code"]) == (True, "env_failed")
            assert wire.call("reset", {"seed": 1})["result"]["isError"] is False
        lost = wire.call("step", {"action": "exit"})["result"]["structuredContent"]
        assert (lost["code"], lost["boundary"]) == ("session_gone", "env")
        until(lambda: client.get("/ready").status == 200)
        assert wire.call("reset")["result"]["isError"] is True  # the first reset reports the lost episode
        assert wire.call("reset", {"seed": 1})["result"]["content"][0]["text"] == "started 1"
        assert wire.call("step", {"action": 3})["error"]["code"] == -32602
        assert wire.call("reset", {"seed": -1})["error"]["code"] == -32602
        assert wire.call("step", {"actoin": "a"})["error"]["code"] == -32602
        assert wire.call("fly")["error"]["code"] == -32602
        wire.end()


def test_error_codes(server: Server) -> None:
    with server.client() as client:
        wire = RawClient(client)
        assert wire.send("tools/list").status == 400  # there is no session before `initialize`
        assert wire.send("server/discover").data["error"]["code"] == -32601
        wire.session = "unknown"
        assert wire.send("tools/list").status == 404
        headers = {"Content-Type": "application/json"}
        assert client.send("GET", wire.path).status == 405
        assert client.send("POST", wire.path, b"{}", {}).status == 415
        assert client.send("POST", wire.path, b"{", headers).data["error"]["code"] == -32700
        assert client.send("POST", wire.path, b"[]", headers).data["error"]["code"] == -32600
        note = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
        assert client.send("POST", wire.path, note, headers).status == 202
        assert client.send("POST", "/mcp/game:Nothing-v0", note, headers).status == 404


def test_leases_and_quotas() -> None:
    with serving(TRICKY, lease=1.0, sessions_per_client=2) as server, server.client() as client:
        wires = [RawClient(client) for _ in range(2)]
        for wire in wires:
            wire.initialize()
            wire.call("reset")
        assert RawClient(client).send("initialize").data["error"]["data"]["code"] == "quota"
        until(lambda: server.number("sessions") == 0)
        assert wires[0].send("tools/list").status == 404
        RawClient(client).initialize()

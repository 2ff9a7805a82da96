"""Test MCP servers as tools: configuration, calls, sessions, and servers that exit, hang or violate the protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

import palestra
from palestra.errors import BadValue, ToolFailed
from palestra.tools import Tool, ToolResult
from palestra.tools.base import on_tool_loop
from palestra.tools.mcp import HttpServer, McpTools, StdioServer, toolset
from palestra.tools.mcp.servers import parse_servers

PLAIN = str(Path(__file__).with_name("mcp_server.py"))


def named(tools: McpTools, name: str) -> Tool:
    return next(tool for tool in tools.tools if tool.name == name)


def run(tools: McpTools, name: str, /, **arguments: Any) -> ToolResult:
    return named(tools, name).run(arguments)


def text_of_call(tools: McpTools, name: str, /, **arguments: Any) -> str:
    return str(run(tools, name, **arguments).text)


def servers(wanted: int = 0) -> list[psutil.Process]:
    gc.collect()  # deleting an unreferenced session stops its server
    for _ in range(3000):
        if len(_servers()) == wanted:
            break
        threading.Event().wait(0.02)
    return _servers()


def kill(pid: int) -> None:
    """Kill a server, and wait until its parent (this process) has reaped it and detected that it exited."""
    connections = [session._connection for session in toolset._open_sessions]
    alive = [connection for connection in connections if connection is not None and connection.alive]
    os.kill(pid, signal.SIGKILL)
    while psutil.pid_exists(pid) or all(connection.alive for connection in alive):
        threading.Event().wait(0.02)


def _servers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "mcp_server.py" in _command(child)]


def _command(process: psutil.Process) -> str:
    """Return the command line of a process, or "" if it has ended, as that of an earlier test may have."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


@pytest.fixture
def plain() -> Iterator[McpTools]:
    with closing(McpTools([PLAIN], timeout=120).open(seed=0)) as tools:
        yield tools
    assert servers() == []


# Configuration


def test_server_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    config = {
        "mcpServers": {
            "files": {"command": "npx", "args": ["-y", "files", "${HOME}"], "env": {"KEY": "${env:TOKEN}"}, "cwd": "/"},
            "off": {"command": "x", "disabled": True},
            "web": {"type": "http", "url": "https://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            "old": {"type": "sse", "url": "http://host/${NOWHERE:-sse}"},
        }
    }
    (tmp_path / "servers.json").write_text(json.dumps(config))
    wanted = (
        StdioServer(
            name="files", command="npx", args=("-y", "files", os.environ["HOME"]), env=(("KEY", "secret"),), cwd="/"
        ),
        HttpServer(name="web", url="https://host/mcp", headers=(("Authorization", "Bearer secret"),)),
        HttpServer(name="old", url="http://host/sse", sse=True),
    )
    assert (
        parse_servers(config)
        == parse_servers(str(tmp_path / "servers.json"))
        == parse_servers(tmp_path / "servers.json")
    )
    assert parse_servers(config) == wanted
    assert parse_servers("uvx mcp-server-time --local-timezone 'a b'") == (
        StdioServer(name="mcp_server_time", command="uvx", args=("mcp-server-time", "--local-timezone", "a b")),
    )
    assert parse_servers(["python3", "-m", "some.server"])[0].name == "some"
    assert parse_servers("./here.py --x") == (
        StdioServer(name="here", command=sys.executable, args=("./here.py", "--x")),
    )
    assert parse_servers("http://localhost:8000/mcp") == (
        HttpServer(name="localhost_8000", url="http://localhost:8000/mcp"),
    )
    assert parse_servers({"command": "x", "args": []})[0] == StdioServer(name="server", command="x")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "needs a command"),
        ("nowhere.json", "cannot be read"),
        ({}, "needs `mcpServers`"),
        ({"mcpServers": {}}, "no enabled server"),
        ({"mcpServers": {"a": 1}}, "a must be an object"),
        ({"mcpServers": {"a": {"args": []}}}, "needs `command`"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "`args` must be a list"),
        ({"mcpServers": {"a": {"url": "x", "type": "carrier-pigeon"}}}, "carrier-pigeon"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": "${NO_SUCH_VARIABLE}"}}}}, "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_invalid_configurations(source: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        McpTools(source)


def test_wrong_options() -> None:
    for options in ({"session": "forever"}, {"timeout": 0}, {"start_timeout": -1}):
        with pytest.raises(BadValue):
            McpTools("x", **options)
    with pytest.raises(BadValue, match="no-such-program: No such file"):
        McpTools("no-such-program").tools  # noqa: B018
    with pytest.raises(BadValue, match="/no/such/folder"):
        McpTools({"command": sys.executable, "cwd": "/no/such/folder"}).tools  # noqa: B018
    with pytest.raises(BadValue, match="have no tool divide"):
        McpTools([PLAIN, "--only"], only=["add", "divide"]).tools  # noqa: B018


# Calls


def test_tools_and_results(plain: McpTools) -> None:
    add = named(plain, "add")
    assert (add.description, add.parameters["required"]) == ("add tool", ["a", "b"])
    assert len(plain.tools) == 18  # tools from both pages of the list
    assert add.run({"a": 2, "b": 3}) == ToolResult(text="5")
    assert add.run({"a": 2, "b": "3"}).text == "5.0"  # models write numbers as strings
    assert asyncio.run(add.arun({"a": 1, "b": 1})).text == "2"
    assert text_of_call(plain, "echo", text="né 東\n" * 1000) == "né 東\n" * 1000
    assert text_of_call(plain, "echo", text="x" * 5_000_000).startswith("x" * 100_000 + "\n[the result was cut")
    assert text_of_call(plain, "ünï-códe.tool", text="abc") == "cba"
    assert run(plain, "picture").text == [
        {"type": "text", "text": "look:"},
        {"type": "image", "image": b"\x89PNG fake"},
    ]
    assert run(plain, "fail", text="no luck") == ToolResult(text="Error: no luck", ok=False)
    refused = run(plain, "refuse")
    assert (refused.ok, refused.text) == (False, "Error: refuse: the call is refused")
    assert run(plain, "add", a=1).ok is False


def test_concurrent_calls(plain: McpTools) -> None:
    async def call_all() -> list[ToolResult]:
        add = named(plain, "add")
        return await asyncio.gather(*(add.arun({"a": n, "b": 1}) for n in range(200)))

    assert [result.text for result in asyncio.run(call_all())] == [str(n + 1) for n in range(200)]


def test_environment_variables_are_not_passed_on(plain: McpTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    with closing(McpTools({"command": sys.executable, "args": [PLAIN], "env": {"GIVEN": "yes"}}).open(seed=0)) as tools:
        assert text_of_call(tools, "env", name="SOME_API_KEY") == "None"
        assert text_of_call(tools, "env", name="GIVEN") == "yes"


# Sessions


def test_every_episode_has_its_own_session() -> None:
    template = McpTools([PLAIN, "--own"])
    first, second = template.open(seed=1), template.open(seed=2)
    with closing(first), closing(second):
        assert [text_of_call(first, "count") for _ in range(3)] == ["1", "2", "3"]
        assert text_of_call(second, "count") == "1"
        assert text_of_call(first, "pid") != text_of_call(second, "pid")
        assert len(servers(2)) == 2
        with pytest.raises(BadValue, match="session='shared'"):
            first.fork()
    assert servers() == []
    first.close()  # closing twice is allowed
    with closing(template.open(seed=3)) as third:
        assert text_of_call(third, "count") == "1"
    with closing(template.open(seed=4)) as unused:
        copied = unused.fork()
        with closing(copied):
            assert text_of_call(copied, "count") == text_of_call(unused, "count") == "1"


def test_a_shared_session() -> None:
    one, two = McpTools([PLAIN, "--shared"], session="shared"), McpTools([PLAIN, "--shared"], session="shared")
    assert one.open(seed=1) is one
    assert one.fork() is one
    assert text_of_call(one, "pid") == text_of_call(two, "pid")
    assert len(servers(1)) == 1
    one.close()
    assert len(servers(1)) == 1  # other episodes may use the server
    run(one, "count")
    with pytest.raises(ToolFailed):
        run(one, "crash")


def test_selected_tools_and_name_conflicts() -> None:
    entry = {"command": sys.executable, "args": [PLAIN]}
    both = McpTools({"mcpServers": {"a": entry, "b": entry}})
    assert "a__add" in [tool.name for tool in both.tools]
    with closing(both.open(seed=0)) as tools:
        assert text_of_call(tools, "a__pid") != text_of_call(tools, "b__pid")
    both.close()
    some = McpTools([PLAIN], only=["add", "echo"])
    assert [tool.name for tool in some.tools] == ["echo", "add"]
    some.close()


def test_pickling() -> None:
    tools = McpTools([PLAIN, "--moved"], timeout=9)
    assert len(tools.tools) == 18
    copy = pickle.loads(pickle.dumps(tools))
    with closing(copy.open(seed=0)) as opened:
        assert text_of_call(opened, "count") == "1"
        assert opened.timeouts.call == 9
    tools.close()


def test_a_forked_child_has_its_own_session() -> None:
    code = (
        f"import os, sys\nfrom palestra.tools.mcp import McpTools\ntools = McpTools([{PLAIN!r}], session='shared')\n"
        "pid = next(t for t in tools.tools if t.name == 'pid')\nparent_pid = pid.run({}).text\nchild = os.fork()\n"
        "if child == 0:\n    os._exit(0 if pid.run({}).text != parent_pid else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert pid.run({}).text == parent_pid\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_no_process_is_left_at_exit() -> None:
    code = (
        f"from palestra.tools.mcp import McpTools\ntools = McpTools([{PLAIN!r}])\nopened = tools.open(seed=0)\n"
        "run = {t.name: t for t in opened.tools}\nprint(run['pid'].run({}).text, run['child'].run({}).text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == ""
    server, child = map(int, done.stdout.split())
    assert not psutil.pid_exists(server)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_many_episodes_leave_no_resources() -> None:
    template = McpTools([PLAIN, "--again"])
    assert len(template.tools) == 18
    resources = []
    for number in range(12):
        with closing(template.open(seed=number)) as tools:
            assert text_of_call(tools, "count") == "1"
            if number % 3 == 0:
                with pytest.raises(ToolFailed):
                    run(tools, "crash")
        resources.append((psutil.Process().num_fds(), on_tool_loop(_tasks()).result()))
    assert resources[-1] == resources[2]
    assert servers() == []


async def _tasks() -> int:
    return len(asyncio.all_tasks())


def test_in_an_environment() -> None:
    tools = [McpTools([PLAIN], only=["add", "count", "crash"])]
    with palestra.make("game:GuessTheNumber-v0-easy", tools=tools, max_tool_calls=9) as env:
        prompt, _ = env.reset(seed=1)
        assert "add(a: number, b: number)" in str(prompt)
        call = '<tool_call>{"name": "%s", "arguments": {%s}}</tool_call>'
        assert "5" in str(env.step(call % ("add", '"a": 2, "b": 3')).observation)
        assert [str(env.step(call % ("count", "")).observation) for _ in range(2)] == ["2", "3"]
        with pytest.raises(ToolFailed, match="exit code 7"):
            env.step(call % ("crash", ""))
        env.reset(seed=1)
        assert str(env.step(call % ("count", "")).observation) == "1"
    assert servers() == []


# Failures


def test_a_server_that_dies_is_reported_and_restarted(plain: McpTools) -> None:
    before = text_of_call(plain, "pid")
    with pytest.raises(ToolFailed, match=r"before it replied to crash: it ended with exit code 7.*a simulated crash"):
        run(plain, "crash")
    assert text_of_call(plain, "count") == "1"
    assert text_of_call(plain, "pid") != before
    kill(int(text_of_call(plain, "pid")))
    with pytest.raises(ToolFailed, match="SIGKILL"):  # the server was killed between two calls, so its state is lost
        run(plain, "count")
    assert text_of_call(plain, "count") == "1"


def test_a_shared_server_that_dies_between_calls_is_restarted() -> None:
    tools = McpTools([PLAIN, "--missed"], session="shared")
    kill(int(text_of_call(tools, "pid")))
    assert text_of_call(tools, "count") == "1"
    with pytest.raises(ToolFailed):
        run(tools, "crash")


def test_all_pending_calls_fail_with_the_server(plain: McpTools) -> None:
    async def together() -> list[Any]:
        slow, crash = named(plain, "slow"), named(plain, "crash")
        pending = [slow.arun({"seconds": 300}) for _ in range(5)]
        return await asyncio.gather(*pending, crash.arun({}), return_exceptions=True)

    results = asyncio.run(together())
    assert [type(result) for result in results] == [ToolFailed] * 6


def test_a_server_that_hangs_is_restarted() -> None:
    with closing(McpTools([PLAIN], timeout=3.0).open(seed=0)) as tools:
        before = int(text_of_call(tools, "pid"))
        with pytest.raises(ToolFailed, match=r"did not reply to hang within 3 s or to other requests"):
            run(tools, "hang")
        assert not psutil.pid_exists(before)
        assert int(text_of_call(tools, "pid")) != before


def test_a_slow_call_does_not_end_the_server() -> None:
    with closing(McpTools([PLAIN], timeout=4.0).open(seed=0)) as tools:
        before = text_of_call(tools, "pid")
        with pytest.raises(ToolFailed, match=r"did not reply to slow within 4 s$"):
            run(tools, "slow", seconds=600)
        assert text_of_call(tools, "pid") == before


def test_invalid_output_between_messages_is_ignored(plain: McpTools) -> None:
    assert text_of_call(plain, "garble", lines=300) == "done"
    noisy = McpTools([PLAIN, "--noise"])
    with closing(noisy.open(seed=0)) as tools:
        assert text_of_call(tools, "add", a=1, b=1) == "2"
    noisy.close()


def test_wrong_ids_and_requests_of_the_server_are_ignored(plain: McpTools) -> None:
    assert text_of_call(plain, "stranger") == "done"
    assert text_of_call(plain, "count") == "2"


def test_a_server_that_dies_in_the_middle_of_a_reply(plain: McpTools) -> None:
    with pytest.raises(ToolFailed, match="before it replied to half: it ended with exit code 0"):
        run(plain, "half")
    assert text_of_call(plain, "count") == "1"


def test_huge_results_are_cut_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.tools.mcp.stdio.MAX_LINE", 1 << 20)
    with closing(McpTools([PLAIN, "--huge"], max_characters=1000).open(seed=0)) as tools:
        assert text_of_call(tools, "huge", characters=1000) == "x" * 1000
        assert (
            text_of_call(tools, "huge", characters=9000)
            == "x" * 1000 + "\n[the result was cut after 1,000 of 9,000 characters]"
        )
        with pytest.raises(ToolFailed, match="it sent a line of more than 1 MB"):
            run(tools, "huge", characters=2 << 20)
        assert text_of_call(tools, "count") == "1"


def test_too_much_invalid_output_is_an_error(plain: McpTools) -> None:
    with pytest.raises(ToolFailed, match=r"it prints output that is not MCP.*the first is 'DEBUG 0"):
        run(plain, "garble", lines=5_000)
    assert text_of_call(plain, "count") == "1"
    with pytest.raises(ToolFailed, match="nonsense"):
        run(plain, "nonsense")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('no configuration')", r"exit code 1.*no configuration"),
        ("import time; print('hello', flush=True); time.sleep(60)", r"not ready within 2 s.*the first is 'hello'"),
        ("while True: print('y' * 50)", "it prints output that is not MCP"),
        ("import sys\nwhile True: sys.stdout.buffer.write(bytes(65536))", "a line of more than 32 MB"),
        ("import os; os.close(1); import time; time.sleep(60)", "it closed its output"),
        ("import os\nwhile True: os.write(1, os.urandom(1000))", "it prints output that is not MCP"),
    ],
)
def test_programs_that_are_not_servers(program: str, message: str) -> None:
    limit = 2 if "hello" in program else 300
    before = {p.pid for p in psutil.Process().children()}  # other tests may have child processes
    with pytest.raises(ToolFailed, match=message):
        McpTools([sys.executable, "-c", program], start_timeout=limit).tools  # noqa: B018
    assert not [p for p in psutil.Process().children() if p.pid not in before and program[:12] in " ".join(p.cmdline())]


def test_a_failed_start_is_retried(tmp_path: Path) -> None:
    tools = McpTools([PLAIN, "--die-first", str(tmp_path / "flag")])
    with pytest.raises(ToolFailed, match="not today"):
        tools.tools  # noqa: B018
    assert text_of_call(tools, "count") == "1"
    tools.close()

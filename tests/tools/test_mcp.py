"""MCP servers as tools: every way to name one, sessions, and servers that die, hang or talk nonsense."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

import palestra
from palestra.errors import BadValue, ToolFailed
from palestra.tools import Tool, ToolResult, make_toolset
from palestra.tools.base import on_tool_loop
from palestra.tools.mcp import Address, McpTools, Program
from palestra.tools.mcp.servers import servers_of

PLAIN = str(Path(__file__).with_name("mcp_server.py"))


def named(tools: McpTools, name: str) -> Tool:
    return next(tool for tool in tools.tools if tool.name == name)


def run(tools: McpTools, name: str, /, **arguments: Any) -> ToolResult:
    return named(tools, name).run(arguments)


def said(tools: McpTools, name: str, /, **arguments: Any) -> str:
    return str(run(tools, name, **arguments).text)


def servers(wanted: int = 0) -> list[psutil.Process]:
    gc.collect()  # a session that nobody holds any more ends its server
    for _ in range(100):
        if len(_servers()) == wanted:
            break
        threading.Event().wait(0.02)
    return _servers()


def killed(pid: int) -> None:
    """End it, and wait until that was noticed: its parent, this process, has fetched its exit code."""
    os.kill(pid, signal.SIGKILL)
    while psutil.pid_exists(pid):
        threading.Event().wait(0.05)
    threading.Event().wait(0.3)


def _servers() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children(recursive=True) if "mcp_server.py" in " ".join(child.cmdline())
    ]


@pytest.fixture
def plain() -> Iterator[McpTools]:
    with closing(McpTools([PLAIN], timeout=20).open(seed=0)) as tools:
        yield tools
    assert servers() == []


# What a server is


def test_every_way_to_name_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        Program(
            name="files", command="npx", args=("-y", "files", os.environ["HOME"]), env=(("KEY", "secret"),), cwd="/"
        ),
        Address(name="web", url="https://host/mcp", headers=(("Authorization", "Bearer secret"),)),
        Address(name="old", url="http://host/sse", sse=True),
    )
    assert servers_of(config) == servers_of(str(tmp_path / "servers.json")) == servers_of(tmp_path / "servers.json")
    assert servers_of(config) == wanted
    assert servers_of("uvx mcp-server-time --local-timezone 'a b'") == (
        Program(name="mcp_server_time", command="uvx", args=("mcp-server-time", "--local-timezone", "a b")),
    )
    assert servers_of(["python3", "-m", "some.server"])[0].name == "some"
    assert servers_of("./here.py --x") == (Program(name="here", command=sys.executable, args=("./here.py", "--x")),)
    assert servers_of("http://localhost:8000/mcp") == (Address(name="localhost_8000", url="http://localhost:8000/mcp"),)
    assert servers_of({"command": "x", "args": []})[0] == Program(name="server", command="x")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "needs a command"),
        ("nowhere.json", "cannot be read"),
        ({}, "no `mcpServers`"),
        ({"mcpServers": {}}, "names no server"),
        ({"mcpServers": {"a": 1}}, "a is an object"),
        ({"mcpServers": {"a": {"args": []}}}, "needs `command`"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "`args` is a list"),
        ({"mcpServers": {"a": {"url": "x", "type": "carrier-pigeon"}}}, "carrier-pigeon"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": "${NO_SUCH_VARIABLE}"}}}}, "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_what_is_no_server(source: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        McpTools(source)


def test_wrong_options() -> None:
    for wrong in ({"session": "forever"}, {"timeout": 0}, {"start_timeout": -1}):
        with pytest.raises(BadValue):
            McpTools("x", **wrong)
    with pytest.raises(BadValue, match="no-such-program: No such file"):
        McpTools("no-such-program").tools  # noqa: B018
    with pytest.raises(BadValue, match="/no/such/folder"):
        McpTools({"command": sys.executable, "cwd": "/no/such/folder"}).tools  # noqa: B018
    with pytest.raises(BadValue, match="no tool divide"):
        McpTools([PLAIN, "--only"], only=["add", "divide"]).tools  # noqa: B018


# Calls


def test_tools_and_results(plain: McpTools) -> None:
    add = named(plain, "add")
    assert (add.description, add.parameters["required"]) == ("add it", ["a", "b"])
    assert len(plain.tools) == 15  # both pages
    assert add.run({"a": 2, "b": 3}) == ToolResult(text="5")
    assert add.run({"a": 2, "b": "3"}).text == "5.0"  # a number as models write it
    assert asyncio.run(add.arun({"a": 1, "b": 1})).text == "2"
    assert said(plain, "echo", text="né 東\n" * 1000) == "né 東\n" * 1000
    assert len(said(plain, "echo", text="x" * 5_000_000)) == 5_000_000
    assert said(plain, "ünï-códe.tool", text="abc") == "cba"
    assert run(plain, "picture").text == [
        {"type": "text", "text": "look:"},
        {"type": "image", "image": b"\x89PNG fake"},
    ]
    assert run(plain, "fail", text="no luck") == ToolResult(text="Error: no luck", ok=False)
    refused = run(plain, "refuse")
    assert (refused.ok, refused.text) == (False, "Error: refuse: I would rather not")
    assert run(plain, "add", a=1).ok is False


def test_many_at_once(plain: McpTools) -> None:
    async def all_of_them() -> list[ToolResult]:
        add = named(plain, "add")
        return await asyncio.gather(*(add.arun({"a": n, "b": 1}) for n in range(200)))

    assert [result.text for result in asyncio.run(all_of_them())] == [str(n + 1) for n in range(200)]


def test_secrets_stay_here(plain: McpTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    with closing(McpTools({"command": sys.executable, "args": [PLAIN], "env": {"GIVEN": "yes"}}).open(seed=0)) as tools:
        assert said(tools, "env", name="SOME_API_KEY") == "None"
        assert said(tools, "env", name="GIVEN") == "yes"


# Sessions


def test_an_episode_has_a_session_of_its_own() -> None:
    template = McpTools([PLAIN, "--own"])
    first, second = template.open(seed=1), template.open(seed=2)
    with closing(first), closing(second):
        assert [said(first, "count") for _ in range(3)] == ["1", "2", "3"]
        assert said(second, "count") == "1"
        assert said(first, "pid") != said(second, "pid")
        assert len(servers(2)) == 2
        with pytest.raises(BadValue, match="session='shared'"):
            first.fork()
    assert servers() == []
    first.close()  # twice is fine
    with closing(template.open(seed=3)) as third:
        assert said(third, "count") == "1"
    with closing(template.open(seed=4)) as unused:
        twin = unused.fork()
        with closing(twin):
            assert said(twin, "count") == said(unused, "count") == "1"


def test_a_shared_one_serves_all() -> None:
    one, two = McpTools([PLAIN, "--shared"], session="shared"), McpTools([PLAIN, "--shared"], session="shared")
    assert one.open(seed=1) is one
    assert one.fork() is one
    assert said(one, "pid") == said(two, "pid")
    assert len(servers(1)) == 1
    one.close()
    assert len(servers(1)) == 1  # others may need it
    run(one, "count")
    with pytest.raises(ToolFailed):
        run(one, "crash")


def test_only_some_and_two_of_the_same_name() -> None:
    entry = {"command": sys.executable, "args": [PLAIN]}
    both = McpTools({"mcpServers": {"a": entry, "b": entry}})
    assert "a__add" in [tool.name for tool in both.tools]
    with closing(both.open(seed=0)) as tools:
        assert said(tools, "a__pid") != said(tools, "b__pid")
    both.close()
    some = McpTools([PLAIN], only=["add", "echo"])
    assert [tool.name for tool in some.tools] == ["echo", "add"]
    some.close()


def test_it_moves_to_another_process() -> None:
    tools = McpTools([PLAIN, "--moved"], timeout=9)
    assert len(tools.tools) == 15
    copy = pickle.loads(pickle.dumps(tools))
    with closing(copy.open(seed=0)) as opened:
        assert said(opened, "count") == "1"
        assert opened.limits.call == 9
    tools.close()


def test_a_forked_child_gets_a_session_of_its_own() -> None:
    code = (
        f"import os, sys\nfrom palestra.tools.mcp import McpTools\ntools = McpTools([{PLAIN!r}], session='shared')\n"
        "pid = next(t for t in tools.tools if t.name == 'pid')\nmine = pid.run({}).text\nchild = os.fork()\n"
        "if child == 0:\n    os._exit(0 if pid.run({}).text != mine else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert pid.run({}).text == mine\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_nothing_is_left_at_exit() -> None:
    code = (
        f"from palestra.tools.mcp import McpTools\ntools = McpTools([{PLAIN!r}])\nopened = tools.open(seed=0)\n"
        "run = {t.name: t for t in opened.tools}\nprint(run['pid'].run({}).text, run['child'].run({}).text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    server, child = map(int, done.stdout.split())
    assert not psutil.pid_exists(server)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_many_episodes_leave_nothing_behind() -> None:
    template = McpTools([PLAIN, "--again"])
    assert len(template.tools) == 15
    held = []
    for number in range(12):
        with closing(template.open(seed=number)) as tools:
            assert said(tools, "count") == "1"
            if number % 3 == 0:
                with pytest.raises(ToolFailed):
                    run(tools, "crash")
        held.append((psutil.Process().num_fds(), on_tool_loop(_tasks()).result()))
    assert held[-1] == held[2]
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


def test_a_server_that_dies_is_told_and_started_again(plain: McpTools) -> None:
    before = said(plain, "pid")
    with pytest.raises(ToolFailed, match=r"crash got no answer: it ended with exit code 7.*it all went wrong"):
        run(plain, "crash")
    assert said(plain, "count") == "1"
    assert said(plain, "pid") != before
    killed(int(said(plain, "pid")))
    with pytest.raises(ToolFailed, match="SIGKILL"):  # between two calls, and what it kept is lost
        run(plain, "count")
    assert said(plain, "count") == "1"


def test_a_shared_server_that_dies_between_calls_is_not_missed() -> None:
    tools = McpTools([PLAIN, "--missed"], session="shared")
    killed(int(said(tools, "pid")))
    assert said(tools, "count") == "1"
    with pytest.raises(ToolFailed):
        run(tools, "crash")


def test_all_who_wait_learn_of_a_death(plain: McpTools) -> None:
    async def together() -> list[Any]:
        slow, crash = named(plain, "slow"), named(plain, "crash")
        waiting = [slow.arun({"seconds": 30}) for _ in range(5)]
        return await asyncio.gather(*waiting, crash.arun({}), return_exceptions=True)

    results = asyncio.run(together())
    assert [type(result) for result in results] == [ToolFailed] * 6


def test_a_server_that_hangs_is_ended_and_started_again() -> None:
    with closing(McpTools([PLAIN], timeout=1.0).open(seed=0)) as tools:
        before = int(said(tools, "pid"))
        with pytest.raises(ToolFailed, match=r"did not answer hang within 1 s, nor anything else"):
            run(tools, "hang")
        assert not psutil.pid_exists(before)
        assert int(said(tools, "pid")) != before


def test_a_slow_call_does_not_cost_the_server_its_life() -> None:
    with closing(McpTools([PLAIN], timeout=1.0).open(seed=0)) as tools:
        before = said(tools, "pid")
        with pytest.raises(ToolFailed, match=r"did not answer slow within 1 s$"):
            run(tools, "slow", seconds=2)
        assert said(tools, "pid") == before


def test_garbage_between_messages_does_not_matter(plain: McpTools) -> None:
    assert said(plain, "garble", lines=300) == "done"
    noisy = McpTools([PLAIN, "--noise"])
    with closing(noisy.open(seed=0)) as tools:
        assert said(tools, "add", a=1, b=1) == "2"
    noisy.close()


def test_nothing_but_garbage_is_told(plain: McpTools) -> None:
    with pytest.raises(ToolFailed, match=r"it prints what is no MCP.*the first: 'DEBUG 0"):
        run(plain, "garble", lines=5_000)
    assert said(plain, "count") == "1"
    with pytest.raises(ToolFailed, match="nonsense"):
        run(plain, "nonsense")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('no configuration')", r"exit code 1.*no configuration"),
        ("import time; print('hello', flush=True); time.sleep(60)", r"not ready within 2 s.*the first: 'hello'"),
        ("while True: print('y' * 50)", "it prints what is no MCP"),
        ("import sys\nwhile True: sys.stdout.buffer.write(bytes(65536))", "a line of more than 32 MB"),
        ("import os; os.close(1); import time; time.sleep(60)", "it closed its output"),
        ("import os\nwhile True: os.write(1, os.urandom(1000))", "it prints what is no MCP"),
    ],
)
def test_programs_that_are_no_servers(program: str, message: str) -> None:
    limit = 2 if "hello" in program else 30
    before = {p.pid for p in psutil.Process().children()}  # what other tests keep running
    with pytest.raises(ToolFailed, match=message):
        McpTools([sys.executable, "-c", program], start_timeout=limit).tools  # noqa: B018
    assert not [p for p in psutil.Process().children() if p.pid not in before and program[:12] in " ".join(p.cmdline())]


def test_a_start_that_failed_is_tried_again(tmp_path: Path) -> None:
    tools = McpTools([PLAIN, "--die-first", str(tmp_path / "flag")])
    with pytest.raises(ToolFailed, match="not today"):
        tools.tools  # noqa: B018
    assert said(tools, "count") == "1"
    tools.close()


# Published servers, over both transports


def test_a_published_server_over_stdio() -> None:
    template = make_toolset(f"mcp:{sys.executable} -m mcp_server_time --local-timezone UTC")
    assert isinstance(template, McpTools)
    with closing(template.open(seed=0)) as tools:
        answer = json.loads(said(tools, "get_current_time", timezone="Asia/Tokyo"))
        assert answer["datetime"].endswith("+09:00")
        wrong = run(tools, "get_current_time", timezone="Moon/Crater")
        assert not wrong.ok
        assert "Moon/Crater" in str(wrong.text)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "page.html").write_text("<html><body><p>The bridge was built in 1871.</p></body></html>")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}/page.html"
        made.shutdown()
        thread.join()


class Web:
    """The published fetcher as a server over HTTP."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            self.port = held.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        options = ["--transport", "streamable-http", "--port", str(self.port), "--allow-private-urls"]
        command = [sys.executable, "-c", "from duckduckgo_mcp_server.server import main; main()", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                threading.Event().wait(0.1)
        raise AssertionError("it did not come up")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def test_a_published_server_over_http(page: str) -> None:
    web = Web()
    try:
        template = McpTools(f"http://127.0.0.1:{web.port}/mcp", timeout=20)
        with closing(template.open(seed=0)) as tools:
            assert "built in 1871" in said(tools, "fetch_content", url=page)
            assert run(tools, "fetch_content", url="not an address").text
            web.kill()
            with pytest.raises(ToolFailed, match="127_0_0_1"):
                run(tools, "fetch_content", url=page)
            with pytest.raises(ToolFailed):
                run(tools, "fetch_content", url=page)
            web.start()
            assert "built in 1871" in said(tools, "fetch_content", url=page)
        template.close()
    finally:
        web.kill()


def test_no_server_at_an_address() -> None:
    with pytest.raises(ToolFailed, match="127_0_0_1_9 cannot be used"):
        McpTools("http://127.0.0.1:9/mcp").tools  # noqa: B018

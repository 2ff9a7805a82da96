"""Test published MCP servers as tools, over stdio and streamable HTTP."""

from __future__ import annotations

import json
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

import pytest

from palestra.errors import ToolFailed
from palestra.tools import make_toolset
from palestra.tools.mcp import McpTools
from tests.tools.test_mcp import run, text_of_call


def test_a_published_server_over_stdio() -> None:
    template = make_toolset(f"mcp:{sys.executable} -m mcp_server_time --local-timezone UTC")
    assert isinstance(template, McpTools)
    with closing(template.open(seed=0)) as tools:
        answer = json.loads(text_of_call(tools, "get_current_time", timezone="Asia/Tokyo"))
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

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/page.html"
        server.shutdown()
        thread.join()


class FetchServer:
    """The published fetch server over HTTP."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            self.port = reserved.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        options = ["--transport", "streamable-http", "--port", str(self.port), "--allow-private-urls"]
        command = [sys.executable, "-c", "from duckduckgo_mcp_server.server import main; main()", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                threading.Event().wait(0.1)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def test_a_published_server_over_http(page: str) -> None:
    web = FetchServer()
    try:
        template = McpTools(f"http://127.0.0.1:{web.port}/mcp", timeout=120)
        with closing(template.open(seed=0)) as tools:
            assert "built in 1871" in text_of_call(tools, "fetch_content", url=page)
            assert run(tools, "fetch_content", url="not an address").text
            web.kill()
            with pytest.raises(ToolFailed, match="127_0_0_1"):
                run(tools, "fetch_content", url=page)
            with pytest.raises(ToolFailed):
                run(tools, "fetch_content", url=page)
            web.start()
            assert "built in 1871" in text_of_call(tools, "fetch_content", url=page)
        template.close()
    finally:
        web.kill()


def test_no_server_at_an_address() -> None:
    with pytest.raises(ToolFailed, match="127_0_0_1_9 cannot be used"):
        McpTools("http://127.0.0.1:9/mcp").tools  # noqa: B018

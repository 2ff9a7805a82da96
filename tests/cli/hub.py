"""Fake of the Hugging Face hub: the part of its HTTP API that an upload uses."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub(ThreadingHTTPServer):
    """Stores the uploaded files in memory; requests without the token are refused."""

    token = "secret"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, Any]] = {}  # name -> the request that created it
        self.files: dict[str, bytes] = {}
        self.messages: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("authorization") != f"Bearer {self.server.token}":
            self._reply(401, {"error": "Invalid token"})
        elif self.path == "/api/repos/create":
            data = json.loads(body)
            name = f"{data['organization']}/{data['name']}" if data.get("organization") else data["name"]
            self.server.repos[name] = data
            self._reply(200, {"url": f"{self.server.url}/{name}"})
        elif self.path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            self._reply(200, {"errors": [], "warnings": []})
        elif self.path.endswith("/preupload/main"):
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self._reply(200, {"files": [{**file, "shouldIgnore": False, "oid": None} for file in files]})
        elif self.path.endswith("/commit/main"):
            for item in map(json.loads, body.splitlines()):
                if item["key"] == "header":
                    self.server.messages.append(item["value"]["summary"])
                else:
                    self.server.files[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
            name = self.path.removeprefix("/api/models/").removesuffix("/commit/main")
            url = f"{self.server.url}/{name}/commit/1"
            self._reply(200, {"commitUrl": url, "commitOid": "1", "success": True})
        else:
            self._reply(404, {"error": f"unknown path {self.path}"})

    def do_GET(self) -> None:
        self._reply(404, {"error": f"unknown path {self.path}"})

    def _reply(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def fake_hub() -> Iterator[Hub]:
    with Hub() as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.shutdown()

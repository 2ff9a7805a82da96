"""Run `palestra view` as a process and send requests to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

OWN = {"x-palestra": "1", "content-type": "application/json"}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self, folder: Path, cache: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "palestra", "view", str(folder), "--port", "0", *flags]
        environment = {**os.environ, "PALESTRA_CACHE": str(cache)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert "http" in line, self.process.stderr.read()
        self.address = next(word for word in line.split() if word.startswith("http")).strip(";")
        self.port = urlsplit(self.address).port

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        host: str | None = None,
    ) -> Reply:
        """Send a request without normalizing its path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True)
            sent = {"host": host or f"127.0.0.1:{self.port}", **(headers or {})}
            data = b"" if body is None else json.dumps(body).encode()
            if method == "POST" and "content-length" not in sent:
                sent["content-length"] = str(len(data))
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(data or None)
            reply = connection.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def get(self, path: str, **params: Any) -> Any:
        """Send a GET request, check that it succeeds, and return its JSON reply."""
        query = urlencode({k: v for k, v in params.items() if v is not None}, doseq=True)
        reply = self.request(f"/api/{path}?{query}")
        assert reply.status == 200, reply
        return reply.json

    def post(self, path: str, body: Any = None, **params: Any) -> Reply:
        query = f"?{urlencode(params)}" if params else ""
        return self.request(f"/api/{path}{query}", method="POST", body={} if body is None else body, headers=OWN)

    def until_read(self, run: str, episodes: int) -> None:
        until(lambda: self.get("changes", run=run)["runs"].get(run, {}).get("episodes") == episodes)

    def close(self) -> str:
        """Stop the server and return its standard error."""
        self.process.terminate()
        _, stderr = self.process.communicate(timeout=120)
        return stderr


def until(fits: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not fits():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)

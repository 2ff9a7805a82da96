"""HTTP server that replies in the formats that hosted APIs document (exchanges.json), and records requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

EXCHANGES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "exchanges.json").read_text())


@dataclass
class HostedAPI:
    """Requests that the server has received, and its address."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@contextmanager
def play_back(names: Sequence[str]) -> Iterator[HostedAPI]:
    """Answer requests with the named exchanges in this order, and all further requests with the last one."""
    api = HostedAPI()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                exchange = EXCHANGES[names[min(len(api.paths), len(names) - 1)]]
                api.paths.append(self.path)
                api.headers.append({name.lower(): value for name, value in self.headers.items()})
                api.bodies.append(body)
                api.times.append(monotonic())
            data = json.dumps(exchange["body"], indent=exchange.get("indent")).encode()
            self.send_response(exchange["status"])
            for name, value in {"Content-Type": "application/json", **exchange.get("headers", {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

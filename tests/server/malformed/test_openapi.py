"""Test requests generated from the OpenAPI document: for some operations per run, or for all in `make test-openapi`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from palestra.remote.protocol import CODES
from tests.server.malformed.bad_requests import ANN
from tests.server.servers import ROOT, Client, Server, SessionClient


def schemathesis(server: Server, folder: Path, session: str, *options: str) -> None:
    (folder / "schemathesis.toml").write_text(f'[parameters]\n"path.session" = "{session}"\n' if session else "")
    arguments = ["--max-examples", "2", "--no-color", "-H", f"Authorization: Bearer {ANN}", *options]
    # Documented 5xx responses are allowed, and an environment may reject data that is valid according to the schema.
    arguments += ["--exclude-checks", "not_a_server_error,positive_data_acceptance"]
    if "CI" in os.environ:
        arguments.append("--generation-deterministic")
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", *arguments],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.server.schema_hooks", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
    assert counts is not None
    assert counts[1] == counts[2]


@pytest.mark.slow
def test_openapi_schema_of_a_session(server: Server, client: Client, play: SessionClient, tmp_path: Path) -> None:
    play.reset(seed=1)
    names = sorted({one["operationId"] for one in operations(client)} - {"close", "deleteSession"})
    if "PALESTRA_OPENAPI_ALL" not in os.environ:
        names = (Random(0) if "CI" in os.environ else SystemRandom()).sample(names, 1)
    chosen = [word for name in names for word in ("--include-operation-id", name)]
    with closing_all(server):
        schemathesis(server, tmp_path, play.session, "--phases", "coverage,fuzzing", *chosen)


def operations(client: Client) -> list[dict[str, Any]]:
    paths = client.get("/openapi.json").data["paths"].values()
    return [value for path in paths for name, value in path.items() if name != "parameters"]


@pytest.mark.slow
def test_openapi_schema_of_call_sequences(server: Server, tmp_path: Path) -> None:
    with closing_all(server):
        schemathesis(server, tmp_path, "", "--phases", "examples,stateful")


@contextmanager
def closing_all(server: Server) -> Iterator[None]:
    """Close all sessions that the log lists as opened."""
    try:
        yield
    finally:
        lines = server.lines
        opened = {line["session"] for line in lines if line["event"] == "session opened" and line["client"] == "ann"}
        ended = {line["session"] for line in lines if line["event"] == "session ended"}
        with server.client(token=ANN) as client:
            for session in opened - ended:
                assert client.send("DELETE", f"/v1/sessions/{session}").status in (200, 404)


def test_every_error_code_is_documented(client: Client) -> None:
    documented = operations(client)
    descriptions = " ".join(
        response["description"] for operation in documented for response in operation["responses"].values()
    )
    assert [code for code in CODES if f"{code}:" not in descriptions] == []
    assert len({operation["operationId"] for operation in documented}) == len(documented) == 17

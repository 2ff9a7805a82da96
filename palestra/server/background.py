"""Run a server in the background for the duration of a `with` block, for notebooks, tests and scripts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from palestra.errors import BadValue

SHUTDOWN_TIMEOUT = 20.0  # seconds to wait for the server to stop


@contextmanager
def running(*envs: str, **options: Any) -> Iterator[str]:
    """Run `palestra serve ENVS` in a child process on a free port, and yield the server's URL.

    `options` are `palestra serve` flags, for example `workers=2`, `token_file="t"` or `imports=["my_envs"]`.
    """
    command = [sys.executable, "-m", "palestra", "serve", *envs, "--port", "0", "--drain", "0", "--log-level", "error"]
    for name, value in options.items():
        flag = "--import" if name == "imports" else f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else [value]:
            command += [flag] if item is True else [flag, str(item)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None  # noqa: S101  # narrows the type
    assert process.stderr is not None  # noqa: S101
    with process.stdout, process.stderr:
        url = re.search(r" at (http://\S+:\d+)", process.stdout.readline())
        if url is None:
            message = process.stderr.read().strip()
            raise BadValue(message or f"`palestra serve` exited with status {process.wait()}")
        try:
            yield url[1]
        finally:
            process.terminate()
            try:
                process.wait(SHUTDOWN_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

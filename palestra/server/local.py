"""A server of one's own for as long as a `with` block lasts: for notebooks, tests, and a machine's other programs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from palestra.errors import BadValue

GRACE = 20.0  # seconds to end in


@contextmanager
def running(*envs: str, **options: Any) -> Iterator[str]:
    """`palestra serve ENVS` in a process of its own, on a free port; gives its address.

    `options` are those of the command: `workers=2`, `token_file="t"`, `imports=["my_envs"]`.
    """
    command = [sys.executable, "-m", "palestra", "serve", *envs, "--port", "0", "--drain", "0", "--log-level", "error"]
    for name, value in options.items():
        flag = "--import" if name == "imports" else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list | tuple) else [value]:
            command += [flag] if one is True else [flag, str(one)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None  # noqa: S101  # as asked for above
    assert process.stderr is not None  # noqa: S101
    with process.stdout, process.stderr:
        found = re.search(r"http://\S+:\d+", process.stdout.readline())
        if found is None:
            raise BadValue(process.stderr.read().strip() or f"the server ended with {process.wait()}")
        try:
            yield found[0]
        finally:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

"""Find Fossil and run it with a fixed clock, in one process per request.

No process runs between two requests, so there is no port to reserve and no server to restart or stop. Fossil prints
times in many places, and the hashes of its artifacts contain them, so it must read the episode's clock: libfaketime
replaces the system's clock in its process. As root, Fossil changes to the folder's owner and calls chroot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from palestra.browser.sites import HOP_HEADERS, Request, Response, SiteFailed
from palestra.errors import EnvFailed, MissingExtra

INSTALL = "apt-get install fossil faketime"
CLOCK_FILES = ("lib/*/faketime/libfaketime.so.1", "lib*/faketime/libfaketime.so.1")
CLOCK_FOLDERS = ("/usr", "/usr/local")
REPOSITORY = "forge.fossil"
SECONDS = 60.0  # maximum time for a request
_DROPPED = HOP_HEADERS | {"accept-encoding", "host", "if-modified-since", "if-none-match"}


@cache
def find_fossil() -> str:
    """Return the path of Fossil; raise MissingExtra with the install command if it was not found."""
    path = shutil.which("fossil")
    if path is None:
        raise MissingExtra(f"Fossil was not found; web:Forge needs it. Install it with: {INSTALL}")
    return path


@cache
def find_clock() -> str:
    """Return the path of libfaketime; raise MissingExtra with the install command if it was not found."""
    for folder in CLOCK_FOLDERS:
        for pattern in CLOCK_FILES:
            for path in sorted(Path(folder).glob(pattern)):
                return str(path)
    raise MissingExtra(
        f"libfaketime was not found; web:Forge needs it to fix the clock of Fossil. Install it with: {INSTALL}"
    )


@cache
def version() -> str:
    """Return Fossil's version, such as "2.21"."""
    output = run("version", folder=Path("/")).split()
    return output[output.index("version") + 1]


def run(*arguments: str, folder: Path) -> str:
    """Run a Fossil command in a folder and return its output; raise EnvFailed if it fails."""
    command = [find_fossil(), *arguments]
    environment = {"HOME": str(folder), "PATH": os.environ.get("PATH", ""), "TZ": "UTC"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvFailed(f"`fossil {' '.join(arguments)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def answer(folder: Path, request: Request, *, user: str, when: datetime) -> Response:
    """Return Fossil's response to a request on the repository in `folder`, from a logged-in user at the given time."""
    environment = {
        "HOME": "/" if os.geteuid() == 0 else str(folder),
        "LD_PRELOAD": find_clock(),
        "FAKETIME": when.strftime("%Y-%m-%d %H:%M:%S"),
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "TZ": "UTC",
        "REMOTE_USER": user,
    }
    command = [find_fossil(), "http", str(folder / REPOSITORY), "--nocompress", "--nodelay", "--nossl"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            input=_message(request),
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise SiteFailed(f"{request.url}: {err}") from err
    head, found, body = done.stdout.partition(b"\r\n\r\n")
    if not found or not head.startswith(b"HTTP/"):
        raise SiteFailed(f"{request.url}: fossil ended with exit status {done.returncode}: {done.stderr[:500]!r}")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    kept = tuple((name, value) for name, value in headers if name.lower() not in (*HOP_HEADERS, "date"))
    return Response(status=int(status.split()[1]), headers=kept, body=body)


def _message(request: Request) -> bytes:
    """Return a request as HTTP. The reply is complete and not compressed."""
    parts = urlsplit(request.url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    headers: Mapping[str, str] = {
        name: value for name, value in request.headers.items() if name.lower() not in _DROPPED
    }
    lines = [f"{request.method} {target} HTTP/1.0", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(request.body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + request.body

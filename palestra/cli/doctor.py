"""`palestra doctor`: what works on this machine, and how to get what does not."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

_MARKS = {"ok": "ok", "weak": "weak", "absent": "--"}
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?.*?;.*extra\s*==\s*['\"]([^'\"]+)['\"]")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that works, works less well, or is not there."""

    what: str
    state: str  # "ok", "weak", "absent"
    says: str
    fix: str = ""  # how to get it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(args: argparse.Namespace) -> int:
    findings = list(examined())
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return 0
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{_MARKS[finding.state]:<4}  {finding.what:<{width}}  {finding.says}")
        if finding.fix:
            print(f"{'':<4}  {'':<{width}}  -> {finding.fix}")
    return 0


def examined() -> Iterator[Finding]:
    """Every check, in the order it is told."""
    yield _machine()
    yield _sandbox()
    yield _gpu()
    yield _java()
    yield _browser()
    yield from _extras()


def _machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    system = f"{platform.system()} {platform.machine()}"
    says = f"Python {platform.python_version()} on {system}, {cores} cores, {memory:.0f} GiB"
    return Finding(what="machine", state="ok", says=says)


def _sandbox() -> Finding:
    from palestra.errors import ToolFailed
    from palestra.tools.sandbox import (  # here: every verb's module is loaded to parse a command line
        Sandbox,
        isolation_level,
    )

    level = isolation_level()
    if level.name == "none":
        says = f"programs cannot be isolated, so tools that run code are off: {level.why}"
        return Finding(what="sandbox", state="absent", says=says, fix=level.fix)
    try:
        with Sandbox(workers=1) as sandbox:
            sandbox.run("print(6 * 7)")
    except ToolFailed as err:
        return Finding(what="sandbox", state="absent", says=f"bubblewrap is here, but programs do not run: {err}")
    if level.why:
        return Finding(what="sandbox", state="weak", says=f"bubblewrap, but {level.why}", fix=level.fix)
    who = "a user of its own for every program" if level.confinement == "root" else "a user namespace for every program"
    says = f"bubblewrap: {who}, no network, own /proc, filtered system calls"
    return Finding(what="sandbox", state="ok", says=says)


def _gpu() -> Finding:
    command = shutil.which("nvidia-smi")
    said = _first_line([command, "--query-gpu=name,memory.total", "--format=csv,noheader"]) if command else ""
    if said:
        return Finding(what="GPU", state="ok", says=said)
    return Finding(what="GPU", state="absent", says="none; models run on the processor, which is enough for small ones")


def _java() -> Finding:
    command = shutil.which("java")
    said = _first_line([command, "-version"]) if command else ""
    if said:
        return Finding(what="Java", state="ok", says=said)
    fix = "Debian, Ubuntu: apt-get install default-jre-headless"
    return Finding(what="Java", state="absent", says="not found; ScienceWorld needs it", fix=fix)


def _browser() -> Finding:
    for name in _BROWSERS:
        command = shutil.which(name)
        said = _first_line([command, "--version"]) if command else ""
        if said:
            return Finding(what="browser", state="ok", says=f"{said} ({command})")
    fix = "Debian: apt-get install chromium"
    return Finding(what="browser", state="absent", says="no Chromium or Chrome; web environments need one", fix=fix)


def _first_line(command: list[str]) -> str:
    """What a program says of itself; "" where it cannot be asked."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def _extras() -> Iterator[Finding]:
    """What `pip install 'palestra[...]'` offers, and whether it is here."""
    try:
        requires = metadata.requires("palestra") or []
    except metadata.PackageNotFoundError:
        yield Finding(
            what="extras", state="weak", says="Palestra is not installed as a package", fix="pip install palestra"
        )
        return
    wanted: dict[str, list[str]] = {}
    for requirement in requires:
        found = _REQUIREMENT.match(requirement)
        if found and found[3] != "dev":
            inner = [f"palestra[{name.strip()}]" for name in (found[2] or "").split(",") if name.strip()]
            wanted.setdefault(found[3], []).extend(inner if found[1].lower() == "palestra" else [found[1]])
    for extra in wanted:
        missing = sorted({name for name in _flat(extra, wanted) if not _installed(name)})
        if missing:
            fix = f"{os.path.basename(sys.executable)} -m pip install 'palestra[{extra}]'"  # noqa: PTH119
            yield Finding(what=f"[{extra}]", state="absent", says=f"without {', '.join(missing)}", fix=fix)
        else:
            yield Finding(
                what=f"[{extra}]",
                state="ok",
                says=", ".join(f"{n} {metadata.version(n)}" for n in _flat(extra, wanted)),
            )


def _flat(extra: str, wanted: dict[str, list[str]]) -> list[str]:
    names: list[str] = []
    for name in wanted.get(extra, []):
        names += _flat(name[9:-1], wanted) if name.startswith("palestra[") else [name]
    return names


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True

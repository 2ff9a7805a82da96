"""`palestra doctor`: check which features work on this machine and print how to enable the others.

`palestra doctor --model NAME` prints which training settings fit on the GPUs instead (`doctor_model.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

from palestra.cli import doctor_model
from palestra.cli.terminal import fitted
from palestra.machine import main_memory, usable_cores
from palestra.optional import install_command
from palestra.progress import phase

_MARKS = {"ok": "ok", "limited": "part", "missing": "--"}
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?.*?;.*extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of checking one feature."""

    feature: str
    state: str  # "ok", "limited" or "missing"
    detail: str
    fix: str = ""  # command that enables the feature


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print the results as JSON.")
    doctor_model.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.model is not None:
        return doctor_model.run(args)
    if args.json:
        print(json.dumps([asdict(finding) for finding in examine()], indent=2))
        return 0
    extras = list(_extras())
    width = max(len(feature) for feature in (*_CHECKS, *(finding.feature for finding in extras)))
    for finding in examine():
        line = f"{_MARKS[finding.state]:<4}  {finding.feature:<{width}}  {finding.detail}"
        print(fitted(line, indent=width + 8))
        if finding.fix:
            print(f"{'':<4}  {'':<{width}}  -> {finding.fix}")
        sys.stdout.flush()
    return 0


def examine() -> Iterator[Finding]:
    """Run all checks and yield their results in the order in which they are printed."""
    for feature, check in _CHECKS.items():
        with phase(f"checking {feature}"):
            finding = check()
        yield finding
    yield from _extras()


def _machine() -> Finding:
    memory = main_memory() / 2**30
    system = f"{platform.system()} {platform.machine()}"
    cores = usable_cores()
    counted = f"{cores} core{'' if cores == 1 else 's'}"
    detail = f"Python {platform.python_version()} on {system}, {counted}, {memory:.0f} GiB"
    return Finding(feature="machine", state="ok", detail=detail)


def _sandbox() -> Finding:
    from palestra.errors import ToolFailed
    from palestra.tools.sandbox import Sandbox, isolation_level

    level = isolation_level()
    if level.name == "none":
        detail = f"programs cannot be isolated, so tools that run code are disabled: {level.why}"
        return Finding(feature="sandbox", state="missing", detail=detail, fix=level.fix)
    try:
        with Sandbox(workers=1) as sandbox:
            sandbox.run("print(6 * 7)")
    except ToolFailed as err:
        return Finding(
            feature="sandbox", state="missing", detail=f"bubblewrap is installed, but programs do not run: {err}"
        )
    if level.why:
        return Finding(feature="sandbox", state="limited", detail=f"bubblewrap, but {level.why}", fix=level.fix)
    isolation = "one user per program" if level.confinement == "root" else "one user namespace per program"
    detail = f"bubblewrap: {isolation}, no network, private /proc, filtered system calls"
    return Finding(feature="sandbox", state="ok", detail=detail)


def _gpu() -> Finding:
    command = shutil.which("nvidia-smi")
    line = _first_line([command, "--query-gpu=name,memory.total", "--format=csv,noheader"]) if command else ""
    if line:
        return Finding(feature="GPU", state="ok", detail=line)
    return Finding(feature="GPU", state="missing", detail="none; models run on the CPU, which is enough for small ones")


def _java() -> Finding:
    command = shutil.which("java")
    line = _first_line([command, "-version"]) if command else ""
    if line:
        return Finding(feature="Java", state="ok", detail=line)
    fix = "Debian, Ubuntu: apt-get install default-jre-headless"
    return Finding(feature="Java", state="missing", detail="not found; ScienceWorld needs it", fix=fix)


def _browser() -> Finding:
    from palestra.browser.executable import INSTALL, find_browser
    from palestra.browser.pool import BrowserPool
    from palestra.errors import EnvFailed, UsageError

    pool = BrowserPool()
    try:
        executable = find_browser()
        version = pool.get().version
    except UsageError as err:
        detail = f"{err}; web environments need a browser"
        return Finding(feature="browser", state="missing", detail=detail, fix=INSTALL)
    except EnvFailed as err:
        return Finding(feature="browser", state="missing", detail=f"{executable} is installed, but {err}")
    finally:
        pool.close()
    if pool.sandboxed:
        return Finding(feature="browser", state="ok", detail=f"{version} ({executable}), in its own sandbox")
    detail = f"{version} ({executable}), without its sandbox, because user namespaces are not available"
    return Finding(feature="browser", state="limited", detail=detail)


def _forge() -> Finding:
    from palestra.envs.web.forge.program import INSTALL, find_clock, find_fossil, version
    from palestra.errors import EnvFailed, MissingExtra

    try:
        executable, clock = find_fossil(), find_clock()
        detail = f"Fossil {version()} ({executable}), with the clock of {clock}"
    except (MissingExtra, EnvFailed) as err:
        return Finding(feature="forge", state="missing", detail=f"{err}", fix=INSTALL)
    return Finding(feature="forge", state="ok", detail=detail)


def _store() -> Finding:
    from palestra.envs.web.store.program import EXTRA, version
    from palestra.errors import EnvFailed, MissingExtra

    try:
        detail = f"django-oscar {version()}"
    except (MissingExtra, EnvFailed) as err:
        return Finding(feature="store", state="missing", detail=f"{err}", fix=install_command(EXTRA))
    return Finding(feature="store", state="ok", detail=detail)


def _first_line(command: list[str]) -> str:
    """Return the first line of a command's output, or "" if the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def _extras() -> Iterator[Finding]:
    """Check that the packages of each optional extra (`pip install 'palestra[EXTRA]'`) are installed."""
    try:
        requires = metadata.requires("palestra") or []
    except metadata.PackageNotFoundError:
        yield Finding(
            feature="extras",
            state="limited",
            detail="Palestra is not installed as a package",
            fix="pip install palestra",
        )
        return
    extras: dict[str, list[str]] = {}
    for requirement in requires:
        match = _REQUIREMENT.match(requirement)
        if match and match[3] != "dev":
            inner = [f"palestra[{name.strip()}]" for name in (match[2] or "").split(",") if name.strip()]
            extras.setdefault(match[3], []).extend(inner if match[1].lower() == "palestra" else [match[1]])
    for extra in extras:
        missing = sorted({name for name in _packages(extra, extras) if not _installed(name)})
        if missing:
            fix = f"{os.path.basename(sys.executable)} -m {install_command(extra)}"  # noqa: PTH119
            yield Finding(feature=f"[{extra}]", state="missing", detail=f"not installed: {', '.join(missing)}", fix=fix)
        else:
            yield Finding(
                feature=f"[{extra}]",
                state="ok",
                detail=", ".join(f"{n} {metadata.version(n)}" for n in _packages(extra, extras)),
            )


def _packages(extra: str, extras: dict[str, list[str]]) -> list[str]:
    names: list[str] = []
    for name in extras.get(extra, []):
        names += _packages(name[9:-1], extras) if name.startswith("palestra[") else [name]
    return names


_CHECKS: dict[str, Callable[[], Finding]] = {
    "machine": _machine,
    "sandbox": _sandbox,
    "GPU": _gpu,
    "Java": _java,
    "browser": _browser,
    "forge": _forge,
    "store": _store,
}


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True

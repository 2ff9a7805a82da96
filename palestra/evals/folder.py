"""Read, write and lock evaluation folders."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from palestra import __version__
from palestra.errors import BadValue
from palestra.evals.outcomes import EPISODES, Key, Outcome, read_outcomes
from palestra.evals.published import Published
from palestra.evals.suite import Suite, SuiteEntry
from palestra.folders import ERROR, check_unused, shortened
from palestra.reports.html import replace_file

SETTINGS, SUMMARY, PAGE, TABLE = "run.json", "summary.json", "report.html", "table.csv"
KIND = "eval"
_PACKAGES = ("torch", "transformers", "tokenizers", "aiohttp", "reasoning-gym")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """Settings of an evaluation as stored in its folder; the evaluation may be unfinished."""

    folder: Path
    suite: Suite
    agent: Mapping[str, Any]
    plan: Mapping[str, Any]  # an evaluation can be resumed only with the same plan
    saved: Mapping[str, Any]  # the contents of run.json

    @property
    def title(self) -> str:
        return f"{self.suite.name}, {self.agent['name']}"

    def outcomes(self) -> dict[Key, Outcome]:
        return read_outcomes(self.folder)


def plan_of(suite: Suite, agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that determines the results, as JSON-compatible data."""
    entries = [entry.to_json() for entry in suite.entries]
    plan = {"suite": suite.name, "agent": dict(agent), "envs": entries, "palestra": __version__}
    data: dict[str, Any] = json.loads(json.dumps(plan, default=repr))
    return data


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """List the differences between two plans as `path: before -> after`."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        lines = []
        for key in dict.fromkeys([*before, *after]):
            lines += differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        return lines
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [line for i, pair in enumerate(zip(before, after, strict=True)) for line in _item(*pair, path, i)]
    if before == after:
        return []
    return [f"{path}: {shortened(before)} -> {shortened(after)}"]


def _item(before: Any, after: Any, path: str, index: int) -> list[str]:
    name = before.get("id", index) if isinstance(before, Mapping) else index
    return differences(before, after, f"{path}[{name}]")


def write_settings(folder: Path, plan: Mapping[str, Any], command: Sequence[str], **more: Any) -> None:
    saved = {"kind": KIND, "plan": plan, "versions": package_versions(), "command": list(command), **more}
    replace_file(folder / SETTINGS, (json.dumps(saved, indent=2) + "\n").encode())


@cache  # finding a package's metadata takes about 10 ms
def package_versions() -> dict[str, str]:
    """Return the versions of installed packages that may affect results."""
    versions = {"palestra": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def read_evaluation(folder: str | Path) -> EvaluationRecord:
    """Read the settings of the evaluation in `folder`; raise BadValue if there is none."""
    folder = Path(folder)
    path = folder / SETTINGS
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved.get("kind") != KIND:
            raise BadValue(f"{folder} contains a training run; `palestra eval --out FOLDER` creates an evaluation")
        plan = saved["plan"]
        entries = tuple(SuiteEntry.from_json(data) for data in plan["envs"])
        published = Published.from_json(saved.get("published", {}))
        suite = Suite(name=plan["suite"], entries=entries, published=published)
        return EvaluationRecord(folder=folder, suite=suite, agent=plan["agent"], plan=plan, saved=saved)
    except (FileNotFoundError, NotADirectoryError) as err:
        raise BadValue(f"{folder} contains no evaluation: {SETTINGS} is missing") from err
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        if isinstance(err, BadValue):
            raise
        raise BadValue(f"{path} is not a valid evaluation record: {err!r}") from err


def holds_evaluation(folder: Path) -> bool:
    try:
        saved = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        return isinstance(saved, dict) and saved.get("kind") == KIND
    except (OSError, ValueError):
        return False


def prepare_folder(
    folder: Path, plan: Mapping[str, Any], command: Sequence[str], *, overwrite: bool = False, **more: Any
) -> None:
    """Prepare `folder` to start or resume an evaluation; raise BadValue if it contains anything else."""
    if (folder / SETTINGS).exists():
        if not holds_evaluation(folder):
            raise BadValue(f"{folder} contains a training run; choose another --out")
        if overwrite:
            for name in (EPISODES, SUMMARY, PAGE, TABLE, ERROR, SETTINGS):
                (folder / name).unlink(missing_ok=True)
        else:
            other = differences(read_evaluation(folder).plan, plan)
            if other:
                listed = "".join(f"\n  {line}" for line in other)
                raise BadValue(
                    f"{folder} contains an evaluation with different settings:{listed}\n"
                    "Choose another --out, or start over with --overwrite"
                )
            return
    else:
        check_unused(folder, ours=False, what="evaluation")
    write_settings(folder, plan, command, **more)


def default_folder(suite: str, agent: str) -> Path:
    """Return the default folder for an evaluation, `runs/eval-SUITE-AGENT`."""
    return Path(f"runs/eval-{_slug(suite)}-{_slug(agent)}")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name.removeprefix("http://").removeprefix("https://")).strip("-.")[:60]

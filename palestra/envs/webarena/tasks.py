"""Read WebArena's tasks from the `libwebarena` and `webarena-verified` packages, or from a file in their format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palestra.envs.webarena.sites import fill_in
from palestra.errors import BadValue, MissingExtra

FILES = {  # package, file in it, command that installs it
    "original": ("webarena", "test.raw.json", "pip install --no-deps libwebarena"),
    "verified": ("webarena_verified", "assets/dataset/webarena-verified.json", "pip install webarena-verified"),
}
WITHOUT_LOGIN = frozenset({"map", "wikipedia", "homepage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaTask:
    """One task, with the addresses of the sites filled in; `raw` is its configuration."""

    id: int
    intent: str
    sites: tuple[str, ...]
    start_urls: tuple[str, ...]
    logins: tuple[str, ...]  # sites on which the agent is logged in
    raw: Mapping[str, Any]

    @property
    def needs_judge(self) -> bool:
        """True if a language model has to compare the answer with the reference."""
        references = (self.raw["eval"].get("reference_answers") or {}) if isinstance(self.raw["eval"], dict) else {}
        return bool(references.get("fuzzy_match", "N/A") != "N/A")


@lru_cache(maxsize=4)
def _rows(dataset: str, path: str | None) -> list[dict[str, Any]]:
    if path is None:
        package, name, install = FILES[dataset]
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtra(f"the package with the tasks is not installed. Install it with: {install}")
        path = str(Path(next(iter(spec.submodule_search_locations))) / name)
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise BadValue(f"cannot read WebArena's tasks in {path}: {err}") from err
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "task_id" in row for row in rows):
        raise BadValue(f"{path} must be a JSON list of WebArena's task configurations")
    return rows


def read_tasks(dataset: str, path: str | None, urls: Mapping[str, str]) -> dict[int, ArenaTask]:
    """Return the tasks that need only sites with a known address, by number."""
    rows = [row for row in _rows(dataset, path) if set(row["sites"]) <= urls.keys()]
    return {int(row["task_id"]): _task(row, urls) for row in rows}


def _task(row: Mapping[str, Any], urls: Mapping[str, str]) -> ArenaTask:
    raw = json.loads(fill_in(json.dumps(row), urls))
    starts = raw["start_urls"] if "start_urls" in raw else raw["start_url"].split(" |AND| ")
    logins = [name for name in raw["sites"] if name not in WITHOUT_LOGIN]
    return ArenaTask(
        id=int(raw["task_id"]),
        intent=raw["intent"],
        sites=tuple(raw["sites"]),
        start_urls=tuple(starts),
        logins=tuple(logins) if raw.get("require_login", True) else (),
        raw=raw,
    )

"""Select the tasks listed in AgentGym's item-id files: JSON lists of `{"item_id": "textcraft_12"}` or item ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from palestra.errors import BadValue
from palestra.evals.suite import Suite, SuiteEntry, suite_entry
from palestra.registry import get_spec
from palestra.registry.agentgym_tasks import TASKS, Task, item_task

# Maximum number of turns in AgentGym-RL's evaluations.
ROUNDS = {"babyai": 20, "sciworld": 30, "searchqa": 30, "textcraft": 30}


def read_item_ids(path: str | Path) -> list[str]:
    """Return the item ids in a file, in order; raise BadValue if the file has another format or repeats an id."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise BadValue(f"cannot read the item ids in {path}: {err}") from err
    rows = data if isinstance(data, list) else []
    ids = [row.get("item_id") if isinstance(row, Mapping) else row for row in rows]
    if not ids or not all(isinstance(item_id, str) for item_id in ids):
        raise BadValue(f'{path} must be a JSON list of item ids, such as [{{"item_id": "textcraft_12"}}]')
    item_ids = [str(item_id) for item_id in ids]
    repeated = [item_id for item_id, count in Counter(item_ids).items() if count > 1]
    if repeated:
        raise BadValue(f"{path} lists {repeated[0]} more than once; use -k for several attempts per task")
    return item_ids


def with_item_ids(suite: Suite, paths: Iterable[str | Path], *, n: int | None = None) -> Suite:
    """In the families that the files cover, replace the suite's tasks with the files' tasks (or the first `n`).

    The turns, attempts, sampling settings, keyword arguments and category come from each family's first entry. A
    suite without entries gets entries with AgentGym-RL's turn limits.
    """
    by_family: dict[str, list[Task]] = {}
    for path in paths:
        ids = read_item_ids(path)
        if n is not None and n > len(ids):
            raise BadValue(f"{path} has {len(ids)} items, fewer than n = {n}; omit -n to play all of them")
        for item_id in ids[:n]:
            family, task = item_task(item_id)
            by_family.setdefault(family, []).append(task)
    entries = list(suite.entries)
    for family, tasks in by_family.items():
        prefix = TASKS[family][0]
        mine = [entry for entry in entries if get_spec(entry.id).id.startswith(prefix)]
        if suite.entries and not mine:
            raise BadValue(f"the items are tasks for {prefix} environments; also pass {tasks[0].env} to play them")
        template = mine[0] if mine else suite_entry(tasks[0].env, n=1, turns=ROUNDS.get(family), where="--data-id")
        place = entries.index(mine[0]) if mine else len(entries)
        entries = [entry for entry in entries if entry not in mine]
        entries[place:place] = _entries(template, tasks)
    return replace(suite, entries=tuple(entries))


def _entries(template: SuiteEntry, tasks: Sequence[Task]) -> list[SuiteEntry]:
    """Return one entry for each environment that occurs in the tasks."""
    seeds: dict[tuple[str, str], list[int]] = {}
    kwargs: dict[tuple[str, str], dict[str, Any]] = {}
    for task in tasks:
        key = (task.env, json.dumps(task.kwargs, sort_keys=True))
        seeds.setdefault(key, []).append(task.seed)
        own = {name: value for name, value in template.kwargs.items() if name != "split"}
        kwargs[key] = {**own, **task.kwargs}
    return [
        replace(template, id=key[0], kwargs=kwargs[key], seeds=tuple(found), every_task=False)
        for key, found in seeds.items()
    ]

"""Compare two evaluations in the served folder, and find the episodes behind every difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palestra.evals.comparison import compare
from palestra.evals.folder import SETTINGS, read_evaluation
from palestra.evals.outcomes import EPISODES
from palestra.viewer.folder import Folder, NotFound, RunLocation
from palestra.viewer.index import Index


def comparison(folder: Folder, index: Index, before: str, after: str, *, metric: str) -> dict[str, Any]:
    """Return `palestra.evals.compare` for two runs; every won and lost task names one episode in each run."""
    places = [folder.run(before), folder.run(after)]
    for place in places:
        _check_inside(folder, place)
    result = compare(places[0].path, places[1].path, metric=metric)
    ids = {entry.name: entry.id for place in places for entry in read_evaluation(place.path).suite.entries}
    for row in result["envs"]:
        env = ids[row["name"]]
        for key, improved in (("wins", True), ("losses", False)):
            row[key] = [_task(index, before, after, env, pair, improved=improved) for pair in row[key]]
    return {**result, "before": before, "after": after}


def _check_inside(folder: Folder, place: RunLocation) -> None:
    """Raise NotFound if the run is no evaluation, or if one of its files is a link to a file outside the folder."""
    try:
        if not place.is_file:
            folder.inside(place.path / SETTINGS)
            folder.inside(place.path / EPISODES)
            return
    except NotFound:
        pass
    raise NotFound(f"{place.name} contains no evaluation; `palestra eval --out FOLDER` creates one")


def _task(index: Index, before: str, after: str, env: str, pair: Sequence[Any], *, improved: bool) -> dict[str, Any]:
    seed, old, new = pair
    return {
        "seed": str(seed),
        "before": old,
        "after": new,
        "before_at": _episode(index, before, env, seed, solved=not improved),
        "after_at": _episode(index, after, env, seed, solved=improved),
    }


def _episode(index: Index, run: str, env: str, seed: int, *, solved: bool) -> str | None:
    """Return an attempt at the task, preferably one with the given outcome; None if it is not indexed yet."""
    attempts: Sequence[Mapping[str, Any]] = index.attempts(run, env, str(seed))
    fitting = [item for item in attempts if (item["outcome"] == "solved") == solved]
    chosen = fitting or attempts
    return f"{chosen[0]['file']}:{chosen[0]['n']}" if chosen else None

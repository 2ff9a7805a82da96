"""Read a run's settings, metrics and results from its folder; any of these files may be missing."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

from palestra.errors import UsageError
from palestra.folders import ERROR
from palestra.registry import get_registered_spec
from palestra.spec import EnvSpec
from palestra.viewer.folder import EPISODES, METRICS, SETTINGS, STORED, SUMMARY, Folder, NotFound, RunLocation

POINTS = 1500  # maximum points per curve; longer curves are downsampled
MAX_CACHED = 60  # maximum number of files whose content is cached
RUNNING = 120.0  # seconds without a change after which a run is considered stopped
SPARK = 40
_RATE = {"success": "success", "low": "success_low", "high": "success_high"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run's settings, metrics and results."""

    place: RunLocation
    settings: Mapping[str, Any] = field(default_factory=dict)  # run.json
    rows: Sequence[Mapping[str, Any]] = ()  # metrics.jsonl
    summary: Any = None  # summary.json
    error: str = ""  # error that ended the run, from error.json
    updated: float = 0.0

    @property
    def config(self) -> Mapping[str, Any]:
        value = self.settings.get("config")
        return value if isinstance(value, dict) else {}

    def setting(self, section: str, name: str) -> Any:
        """Return a training run's setting, or None if it is not set."""
        table = self.config.get(section)
        return table.get(name) if isinstance(table, dict) else None

    @property
    def kind(self) -> str:
        """Kind of run: "train", "eval", "play", or "episodes" if unknown."""
        named = self.settings.get("kind")
        if isinstance(named, str) and named in ("train", "eval", "play"):
            return named
        if self.rows or "algorithm" in self.config:
            return "train"
        return "episodes"

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if row["step"] >= 0]

    @property
    def evaluations(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if isinstance(row.get("eval_success"), (int, float))]

    @property
    def done(self) -> int:
        """Number of completed training steps, or of completed episodes in an evaluation."""
        if self.kind == "eval":
            return _int(self.result.get("episodes"))
        return int(self.rows[-1]["step"]) + 1 if self.rows else 0

    @property
    def planned(self) -> int:
        return _int(self.result.get("planned") if self.kind == "eval" else self.setting("run", "steps"))

    @property
    def result(self) -> Mapping[str, Any]:
        """Row with the totals for an evaluation."""
        table = self.summary.get("table") if isinstance(self.summary, dict) else None
        total = table.get("total") if isinstance(table, dict) else None
        return total if isinstance(total, dict) else {}

    @property
    def plan(self) -> Mapping[str, Any]:
        """An evaluation's plan: its suite and agent."""
        value = self.settings.get("plan")
        return value if isinstance(value, dict) else {}

    @property
    def envs(self) -> list[str]:
        trained = self.setting("env", "name")
        named = self.plan.get("envs", self.settings.get("env")) if trained is None else trained
        listed = named if isinstance(named, list) else [named] if isinstance(named, str) else []
        names = [_env_name(env.get("id") if isinstance(env, dict) else env) for env in listed]
        return list(dict.fromkeys(names))

    @property
    def player(self) -> str:
        """Name of the trained model or the evaluated agent."""
        agent = self.plan.get("agent", self.settings.get("agent"))
        model = self.setting("model", "name")
        return _text(model or (agent.get("name") if isinstance(agent, dict) else agent))

    @property
    def finished(self) -> bool:
        target = self.setting("eval", "target") or 2.0
        reached = isinstance(target, (int, float)) and any(row["eval_success"] >= target for row in self.evaluations)
        return reached or 0 < self.planned <= self.done

    @property
    def state(self) -> str:
        return _state(self.kind, self.finished, self.error, self.updated)

    def card(self) -> dict[str, Any]:
        """Return the fields displayed in the list of runs."""
        card = {
            "name": self.place.name,
            "kind": self.kind,
            "envs": self.envs,
            "algorithm": _text(self.setting("algorithm", "name")),
            "model": self.player,
            "seed": _text(self.setting("run", "seed")),
            "done": self.done,
            "planned": self.planned,
            "finished": self.finished,
            "state": self.state,
            "error": self.error,
            "updated": self.updated,
            "spark": _spark(self.steps),
        }
        last = self.evaluations[-1] if self.evaluations else None
        if _is_number(self.result.get("success")):
            card |= {name: self.result.get(key) for name, key in _RATE.items()}
        elif last is not None:
            card |= {name: last.get(f"eval_{key}") for name, key in _RATE.items()}
        elif self.steps and _is_number(self.steps[-1].get("success")):
            card |= {"success": self.steps[-1]["success"], "training": True}
        return card

    def curves(self) -> dict[str, Any]:
        """Return downsampled metric curves over steps, tokens and time, with evaluations and horizon stages."""
        return {
            "name": self.place.name,
            "done": self.done,
            "planned": self.planned,
            "state": self.state,
            "reference": self._reference_rates(),
            "training": _columns(_thinned(self._placed(self.steps, after=False))),
            "evaluations": _columns(self._placed(self.evaluations, after=True)),
            "stages": self._stages(),
        }

    def _reference_rates(self) -> dict[str, float]:
        """Return the mean success rates of the random player and the expert, as stated in the environments' specs.

        Keyword arguments, tools and wrappers change a task, so there are no rates for runs with any of them.
        """
        if any(self.setting("env", name) for name in ("kwargs", "tools", "wrappers")):
            return {}
        specs = [spec for spec in map(_spec, self.envs) if spec is not None]
        rates = {}
        for player in ("random", "expert"):
            values = [getattr(spec, f"{player}_success") for spec in specs]
            if values and len(values) == len(self.envs) and all(value is not None for value in values):
                rates[player] = sum(values) / len(values)
        return rates

    def _placed(self, rows: Sequence[Mapping[str, Any]], *, after: bool) -> list[dict[str, Any]]:
        """Add x positions to rows of metrics; with `after`, the metrics were measured after the step's update."""
        spent = self._spent()
        placed = []
        for row in rows:
            step = int(row["step"]) + after
            tokens, seconds = spent.get(step, (0.0, 0.0))
            values = {
                k.removeprefix("eval_") if after else k: v
                for k, v in row.items()
                if (k.startswith("eval_") if after else not k.startswith("eval_")) and k != "step" and _is_number(v)
            }
            placed.append({"step": step, "tokens": tokens, "time": seconds, **values})
        return placed

    def _spent(self) -> dict[int, tuple[float, float]]:
        """Return cumulative tokens and seconds per completed step."""
        episodes = _int(self.setting("sampling", "episodes"))
        cumulative = {0: (0.0, 0.0)}
        tokens = seconds = 0.0
        for row in self.rows:
            seconds += sum(v for k, v in row.items() if k.startswith("seconds_") and _is_number(v))
            if row["step"] < 0:
                cumulative[0] = (0.0, seconds)
                continue
            played = episodes - _int(row.get("failures"))
            if _is_number(row.get("tokens_per_episode")):
                tokens += float(row["tokens_per_episode"]) * played
            cumulative[int(row["step"]) + 1] = (tokens, seconds)
        return cumulative

    def _stages(self) -> list[dict[str, Any]]:
        """Return the steps at which the horizon changes."""
        stages: list[dict[str, Any]] = []
        spent = self._spent()
        for row in self.steps:
            turns = row.get("horizon")
            if turns is not None and (not stages or stages[-1]["turns"] != turns):
                tokens, seconds = spent.get(int(row["step"]), (0.0, 0.0))
                stages.append({"turns": turns, "step": row["step"], "tokens": tokens, "time": seconds})
        return stages if len(stages) > 1 else []


class RunReader:
    """Reads run summaries and caches them until their files change."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._cache: dict[Path, tuple[tuple[int, int, int], Any]] = {}
        self._cards: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, place: RunLocation) -> RunSummary:
        if place.is_file:
            return RunSummary(place=place, updated=_updated(place))
        settings = self._cached_json(place.path / SETTINGS)
        return RunSummary(
            place=place,
            settings=settings if isinstance(settings, dict) else {},
            rows=self._read(place.path / METRICS, _rows) or [],
            summary=self._cached_json(place.path / SUMMARY),
            error=_error(self._cached_json(place.path / ERROR)),
            updated=_updated(place),
        )

    def card(self, place: RunLocation) -> dict[str, Any]:
        """Return the fields displayed in the list of runs; they are cached for all runs, because they are small."""
        version = self.version(place)
        cached = self._cards.get(place.name)
        if cached is None or cached[0] != version:
            cached = self._cards[place.name] = (version, self.of(place).card())
        updated = _updated(place)
        card = cached[1]
        state = _state(card["kind"], card["finished"], card["error"], updated)
        return {**card, "updated": updated, "state": state}

    def version(self, place: RunLocation) -> str:
        """Return a string that changes whenever the summary changes."""
        names = (SETTINGS, METRICS, SUMMARY, ERROR)
        return "-".join(str(_mark(place.path / name)) for name in names) if not place.is_file else ""

    def _cached_json(self, path: Path) -> Any:
        return self._read(path, _json)

    def _read(self, path: Path, reader: Any) -> Any:
        mark = _mark(path)
        if mark is None:
            return None
        with self._lock:
            cached = self._cache.get(path)
        if cached is not None and cached[0] == mark:
            return cached[1]
        try:
            content = reader(self.folder.read(path))
        except NotFound:
            return None
        with self._lock:
            self._cache[path] = (mark, content)
            while len(self._cache) > MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
        return content


def _updated(place: RunLocation) -> float:
    names = (SETTINGS, METRICS, SUMMARY, *EPISODES, STORED)
    return _changed(place.path) if place.is_file else max(_changed(place.path / name) for name in names)


def _state(kind: str, finished: bool, error: str, updated: float) -> str:
    """Return "finished", "failed", "running" or "stopped"; "" for recorded games and other episodes."""
    if kind not in ("train", "eval"):
        return ""
    if finished:
        return "finished"
    if error:
        return "failed"
    return "running" if time() - updated < RUNNING else "stopped"


def _error(data: Any) -> str:
    return f"{_text(data.get('kind'))}: {_text(data.get('message'))}" if isinstance(data, dict) else ""


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _rows(data: bytes) -> list[dict[str, Any]]:
    """Return the rows that have a step, up to the first incomplete line."""
    rows = []
    for line in data.split(b"\n"):
        row = _json(line)
        if row is None:
            break
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Downsample to at most POINTS rows by averaging neighboring rows."""
    if len(rows) <= POINTS:
        return rows
    thinned = []
    for i in range(POINTS):
        part = rows[len(rows) * i // POINTS : len(rows) * (i + 1) // POINTS]
        keys = dict.fromkeys(key for row in part for key in row)
        means = {}
        for key in keys:
            values = [row[key] for row in part if key in row]
            means[key] = sum(values) / len(values)
        thinned.append(means)
    return thinned


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return one list per metric, with None for rows without a value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _spark(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    values = [float(row["success"]) for row in steps if _is_number(row.get("success"))]
    count = min(SPARK, len(values))
    parts = [values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count)]
    return [round(sum(part) / len(part), 4) for part in parts]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _env_name(value: Any) -> str:
    """Return the name of an environment without its weight."""
    return str(value) if "?" in str(value) else str(value).partition("=")[0]


def _spec(name: str) -> EnvSpec | None:
    try:
        return get_registered_spec(name)
    except UsageError:
        return None


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)

"""Compare two evaluations on the same tasks by paired differences, with confidence intervals and significance tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

from palestra.errors import BadValue
from palestra.evals.folder import EvaluationRecord, differences, read_evaluation
from palestra.evals.outcomes import Key, Outcome
from palestra.evals.paired import difference, holm, mcnemar, sign_flips
from palestra.evals.stats import Estimate, mean, mean_of_means
from palestra.evals.text import aligned, markdown

METRICS: Mapping[str, Callable[[Outcome], float]] = {
    "success": lambda one: float(bool(one.success)),
    "return": lambda one: one.reward,
    "score": lambda one: one.score,
}
LISTED = 20  # maximum number of wins and losses listed in text output; JSON output lists all
Pair = tuple[int, float, float]  # seed, before, after


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Results for one environment in both evaluations, paired by seed."""

    name: str
    pairs: Sequence[Pair]
    unpaired: int  # number of tasks with a result in only one evaluation

    @property
    def values(self) -> list[float]:
        return [after - before for _, before, after in self.pairs]


def compare(before: str | Path, after: str | Path, *, metric: str = "success") -> dict[str, Any]:
    """Return the difference between `after` and `before` on the tasks that both contain, as JSON-compatible data."""
    if metric not in METRICS:
        raise BadValue(f"`metric` must be one of {', '.join(METRICS)}; got {metric!r}")
    one, two = read_evaluation(before), read_evaluation(after)
    paired = _pairs(one, two, METRICS[metric])
    if not paired:
        raise BadValue(
            f"{before} and {after} have no task in common; a task has the same environment, keyword arguments and seed"
        )
    rows = [_row(p, metric) for p in paired]
    for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = adjusted
    return {
        "before": str(before),
        "after": str(after),
        "metric": metric,
        "envs": rows,
        "total": _total(paired, rows, metric),
        "settings_that_differ": differences(_settings(one), _settings(two)),
    }


def _pairs(one: EvaluationRecord, two: EvaluationRecord, value: Callable[[Outcome], float]) -> list[Paired]:
    first, second = _by_task(one, value), _by_task(two, value)
    other = {name: name for name in second}
    counterparts = _unmatched(two, second, first)
    # Also pair entries with the same id but different keyword arguments, which settings_that_differ lists.
    for env_id, name in _unmatched(one, first, second).items():
        if env_id in counterparts:
            other[name] = counterparts[env_id]
    paired = []
    for name, tasks in first.items():
        other_tasks = second.get(other.get(name, ""), {})
        pairs = [(seed, had, other_tasks[seed]) for seed, had in tasks.items() if seed in other_tasks]
        if pairs:
            paired.append(Paired(name=name, pairs=pairs, unpaired=len(tasks) + len(other_tasks) - 2 * len(pairs)))
    return paired


def _unmatched(record: EvaluationRecord, names: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, str]:
    """Map ids to names for the entries whose name is not in `others`; ids that occur twice are omitted."""
    left = [entry for entry in record.suite.entries if entry.name in names and entry.name not in others]
    ids = [entry.id for entry in left]
    return {entry.id: entry.name for entry in left if ids.count(entry.id) == 1}


def _by_task(record: EvaluationRecord, value: Callable[[Outcome], float]) -> dict[str, dict[int, float]]:
    """Return the mean over all attempts for each environment and seed."""
    outcomes: Mapping[Key, Outcome] = record.outcomes()
    by_env: dict[str, dict[int, float]] = {}
    for index, entry in enumerate(record.suite.entries):
        tasks = by_env.setdefault(entry.name, {})
        for seed in entry.seeds:
            played = [outcomes.get((index, seed, member)) for member in range(entry.k)]
            values = [value(one) for one in played if one is not None and not one.failed]
            if values:
                tasks[seed] = fsum(values) / len(values)
    return by_env


def _row(paired: Paired, metric: str) -> dict[str, Any]:
    values = paired.values
    estimate = difference(values) if metric == "success" else mean([[value] for value in values])
    p, test = _test(values)
    n = len(values)
    return {
        "name": paired.name,
        "tasks": n,
        "unpaired": paired.unpaired,
        "before": fsum(pair[1] for pair in paired.pairs) / n,
        "after": fsum(pair[2] for pair in paired.pairs) / n,
        "difference": estimate.value,
        "difference_low": estimate.low,
        "difference_high": estimate.high,
        "p": p,
        "test": test,
        "wins": [list(pair) for pair in paired.pairs if pair[2] > pair[1]],
        "losses": [list(pair) for pair in paired.pairs if pair[2] < pair[1]],
    }


def _test(values: Sequence[float]) -> tuple[float, str]:
    if all(value in (-1.0, 0.0, 1.0) for value in values):
        wins, losses = sum(value > 0 for value in values), sum(value < 0 for value in values)
        return mcnemar(wins, losses), "exact McNemar"
    return sign_flips(values), "sign flips"


def _total(paired: Sequence[Paired], rows: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Average over environments with equal weight."""
    estimates = [
        Estimate(value=row["difference"], low=row["difference_low"], high=row["difference_high"], n=row["tasks"])
        for row in rows
    ]
    estimate = estimates[0] if len(rows) == 1 else mean_of_means(estimates)
    # The permutation test flips the sign of each task's difference; the weights are the same as in the mean.
    weighed = [value / len(one.pairs) for one in paired for value in one.values]
    p, test = (rows[0]["p"], rows[0]["test"]) if len(rows) == 1 else (sign_flips(weighed), "sign flips")
    return {
        "metric": metric,
        "tasks": sum(row["tasks"] for row in rows),
        "unpaired": sum(row["unpaired"] for row in rows),
        "before": fsum(row["before"] for row in rows) / len(rows),
        "after": fsum(row["after"] for row in rows) / len(rows),
        "difference": estimate.value,
        "difference_low": estimate.low,
        "difference_high": estimate.high,
        "p": p,
        "test": test,
        "wins": sum(len(row["wins"]) for row in rows),
        "losses": sum(len(row["losses"]) for row in rows),
    }


def _settings(record: EvaluationRecord) -> dict[str, Any]:
    """Return the settings that could explain a difference, excluding the agent's name and the tasks."""
    keys = ("sampling", "system", "style", "template", "template_options", "conversation")
    agent = {key: value for key, value in record.agent.items() if key in keys}
    per_env = {
        entry.id: {"kwargs": entry.kwargs, "k": entry.k, "turns": entry.turns, "sampling": entry.sampling}
        for entry in record.suite.entries
    }
    return {"agent": agent, "versions": dict(record.saved.get("versions", {})), "envs": per_env}


# Text output


def as_text(comparison: Mapping[str, Any], *, as_markdown: bool = False, width: int | None = None) -> str:
    """Format a comparison as Markdown, or for a terminal with `width` characters per line (default: no limit)."""
    shown, change = (_percent, _points) if comparison["metric"] == "success" else (_number, _number)
    unit = " (points)" if comparison["metric"] == "success" else ""
    head = ["environment", "tasks", "before", "after", f"difference{unit}", "95% interval", "p", "wins", "losses"]
    rows = list(comparison["envs"])
    several = len(rows) > 1
    if several:
        head.insert(7, "p (Holm)")
    body = [_cells(row, row["name"], shown, change, several=several) for row in rows]
    if several:
        body.append(_cells({**comparison["total"], "p_holm": None}, "all environments", shown, change, several=True))
    title = f"{comparison['after']} against {comparison['before']}: {comparison['metric']}, paired by seed"
    table = markdown(head, body) if as_markdown else aligned(head, body, width)
    parts = [f"### {title}" if as_markdown else title, table, _verdict(comparison, change)]
    if comparison["total"]["unpaired"]:
        parts.append(f"{comparison['total']['unpaired']} tasks have a result in only one evaluation and are excluded.")
    for word in ("wins", "losses"):
        lines = [line for row in rows for line in _listed(row, word, shown)]
        if lines:
            mark = "- " if as_markdown else "  "
            parts.append("\n".join([f"{word}:", *([""] if as_markdown else []), *(mark + line for line in lines)]))
    if comparison["settings_that_differ"]:
        mark = "- " if as_markdown else "  "
        lines = [mark + line for line in comparison["settings_that_differ"]]
        parts.append("\n".join(["settings that differ:", *([""] if as_markdown else []), *lines]))
    return "\n\n".join(parts)


def _cells(
    row: Mapping[str, Any],
    name: str,
    shown: Callable[[float], str],
    change: Callable[[float], str],
    *,
    several: bool,
) -> list[str]:
    """Return a row of the table; `shown` formats values, and `change` differences between them."""
    low, high = row["difference_low"], row["difference_high"]
    wins, losses = (x if isinstance(x, int) else len(x) for x in (row["wins"], row["losses"]))
    holms = row.get("p_holm")
    return [
        name,
        str(row["tasks"]),
        shown(row["before"]),
        shown(row["after"]),
        "+" * (row["difference"] >= 0) + change(row["difference"]),
        "-" if low is None or high is None else f"{change(low)} to {change(high)}",
        f"{row['p']:.3g}",
        *(["-" if holms is None else f"{holms:.3g}"] if several else []),
        str(wins),
        str(losses),
    ]


def _verdict(comparison: Mapping[str, Any], change: Callable[[float], str]) -> str:
    total = comparison["total"]
    size = change(abs(total["difference"])) + " points" * (comparison["metric"] == "success")
    if total["p"] >= 0.05:
        return f"The difference is not statistically significant (p = {total['p']:.3g}, {total['test']})."
    word = "better" if total["difference"] > 0 else "worse"
    return f"{comparison['after']} is {word} by {size} (p = {total['p']:.3g}, {total['test']})."


def _listed(row: Mapping[str, Any], word: str, shown: Callable[[float], str]) -> list[str]:
    pairs = row[word]
    if not pairs:
        return []
    plain = all({before, after} == {0.0, 1.0} for _, before, after in pairs)
    seeds = [str(seed) if plain else f"{seed} ({shown(b)} -> {shown(a)})" for seed, b, a in pairs[:LISTED]]
    more = f" and {len(pairs) - LISTED} more" if len(pairs) > LISTED else ""
    return [f"{row['name']}: seeds {', '.join(seeds)}{more}"]


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _points(value: float) -> str:
    """Format a difference of two rates in percentage points; "12.5%" could be read as a relative change."""
    return f"{100 * value:.1f}"


def _number(value: float) -> str:
    return f"{value:.3f}"

"""Summarize outcomes per environment, category and level, and in total, as JSON-compatible data.

`table` depends only on the episodes, so an interrupted and resumed evaluation has the same table as an uninterrupted
one. Everything that depends on time is in `running`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.evals import stats
from palestra.evals.outcomes import Key, Outcome
from palestra.evals.published import comparison
from palestra.evals.suite import Suite, SuiteEntry
from palestra.registry import get_spec

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in US dollars per million tokens."""

    read: float | None = None
    written: float | None = None

    @property
    def known(self) -> bool:
        return self.read is not None or self.written is not None

    def cost(self, read: float, written: float) -> float:
        return ((self.read or 0.0) * read + (self.written or 0.0) * written) / 1e6


def summarise(
    suite: Suite,
    outcomes: Mapping[Key, Outcome],
    prices: Prices | None = None,
    training_tasks: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return `table` (rows per environment, category, level, and the total) and `running` (timing).

    `training_tasks` are the fingerprints of the tasks that the agent was trained on, if they are known.
    """
    prices = prices or Prices()
    keys = [(task.meta["entry"], task.seed, task.member) for task in suite.tasks()]
    # Finished episodes in suite order, not in completion order.
    finished = {key: outcomes[key] for key in keys if key in outcomes}
    rows, estimates = [], []
    for index, entry in enumerate(suite.entries):
        episodes = [one for key, one in finished.items() if key[0] == index]
        row, env_estimates = _environment(entry, episodes, prices)
        row |= _task_counts(episodes, training_tasks)
        rows.append(row)
        estimates.append((entry, row, env_estimates))
    table: Row = {"envs": rows, "categories": [], "levels": [], "total": None}
    if len(rows) > 1:
        table["categories"] = _groups(estimates, lambda entry: entry.category, prices)
        table["levels"] = _groups(estimates, lambda entry: entry.level, prices)
    table["total"] = _together("all", estimates, prices)
    table["published"] = comparison(table, suite.published)
    return {"table": table, "running": _running(suite, list(finished.values()))}


# One environment

_VALUES: Mapping[str, Callable[[Outcome], float]] = {"return": lambda one: one.reward, "score": lambda one: one.score}


def _environment(
    entry: SuiteEntry, episodes: Sequence[Outcome], prices: Prices
) -> tuple[Row, dict[str, stats.Estimate]]:
    played = [one for one in episodes if not one.failed]
    tasks: dict[int, list[Outcome]] = {}
    for one in played:
        tasks.setdefault(one.seed, []).append(one)
    groups = list(tasks.values())
    row: Row = {
        "env": entry.id,
        "name": entry.name,
        "kwargs": dict(entry.kwargs),
        "category": entry.category,
        "level": entry.level,
        "turn_budget": entry.turns,
        "k": entry.k,
        **_counts(len(entry.seeds) * entry.k, episodes),
    }
    if not played:
        return row, {}
    known = {"success": stats.rate([[bool(one.success) for one in group] for group in groups])}
    for name, value in _VALUES.items():
        # If the return always equals success, it is a rate, for which there are better intervals than for a mean.
        same = all(value(one) == float(bool(one.success)) for one in played)
        known[name] = known["success"] if same else stats.mean([[value(one) for one in group] for group in groups])
    spec = get_spec(entry.id)
    low, high = spec.random_success, spec.expert_success
    if low is not None and high is not None and high > low and not _other_task(entry):
        known["normalised"] = known["success"].scaled(low, high)
        row |= {"random_success": low, "expert_success": high}
    for name, estimate in known.items():
        row |= _named(name, estimate)
    if entry.k > 1:
        row |= _passes(groups, entry.k)
    row |= _averages(played, prices)
    return row, known


def _other_task(entry: SuiteEntry) -> bool:
    """Return True if keyword arguments differ from the registered ones, so that the documented rates do not apply."""
    return any(key not in ("tools", "max_tool_calls", "split") for key in entry.kwargs)


def _task_counts(episodes: Sequence[Outcome], training_tasks: Collection[str] | None) -> Row:
    """Return the number of distinct tasks, and the share of episodes whose task occurred in training, if known."""
    tasks = [one.task_id for one in episodes if one.task_id]
    if not tasks:
        return {}
    counts: Row = {"distinct_tasks": len(set(tasks))}
    if training_tasks is not None:
        counts["seen_in_training"] = sum(task in training_tasks for task in tasks) / len(tasks)
    return counts


def _counts(planned: int, mine: Sequence[Outcome]) -> Row:
    """Count planned, finished, failed and missing episodes, and how episodes ended."""
    return {
        "planned": planned,
        "episodes": sum(not one.failed for one in mine),
        "failed": sum(one.failed for one in mine),
        "failed_by": dict(sorted(Counter(one.boundary for one in mine if one.boundary is not None).items())),
        "missing": planned - len(mine),
    }


def _passes(groups: Sequence[Sequence[Outcome]], k: int) -> Row:
    """Return pass@j and pass^j for powers of two up to k and for k, over tasks with at least j attempts."""
    row: Row = {}
    for j in sorted({2**i for i in range(k.bit_length()) if 2**i <= k} | {k}):
        counts = [(len(group), sum(bool(one.success) for one in group)) for group in groups if len(group) >= j]
        if counts:
            row |= _named(f"pass@{j}", _between(stats.mean([[stats.pass_at(j, n, c)] for n, c in counts])))
            row |= _named(f"pass^{j}", _between(stats.mean([[stats.pass_all(j, n, c)] for n, c in counts])))
    return row


def _between(found: stats.Estimate) -> stats.Estimate:
    """Clip an estimate to the range from 0 to 1."""
    low, high = (None if edge is None else min(1.0, max(0.0, edge)) for edge in (found.low, found.high))
    return stats.Estimate(value=found.value, low=low, high=high, n=found.n)


def _averages(played: Sequence[Outcome], prices: Prices) -> Row:
    n = len(played)
    row: Row = {
        "turns": sum(one.turns for one in played) / n,
        "tool_calls": sum(one.tool_calls for one in played) / n,
        "invalid_actions": sum(one.invalid for one in played) / max(1, sum(one.turns for one in played)),
        "empty_replies": sum(one.empty for one in played) / max(1, sum(one.turns for one in played)),
        "truncated": sum(one.truncated for one in played) / n,
        "endings": dict(sorted(Counter(one.ending or "unnamed" for one in played).items())),
    }
    if all(one.tokens_read is not None and one.tokens_written is not None for one in played):
        read = sum(one.tokens_read or 0 for one in played)
        written = sum(one.tokens_written or 0 for one in played)
        row |= {"tokens_read": read / n, "tokens_written": written / n}
        if prices.known:
            row |= {"cost": prices.cost(read, written)}
    return row


def _named(name: str, estimate: stats.Estimate) -> Row:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


# Several environments

_Known = tuple[SuiteEntry, Row, dict[str, stats.Estimate]]


def _groups(estimates: Sequence[_Known], by: Callable[[SuiteEntry], str], prices: Prices) -> list[Row]:
    names = list(
        dict.fromkeys(by(entry) for entry, _, _ in estimates if by(entry))
    )  # entries without a level are omitted
    return [_together(name, [one for one in estimates if by(one[0]) == name], prices) for name in names]


def _together(name: str, members: Sequence[_Known], prices: Prices) -> Row:
    """Average over environments with equal weight, regardless of how many episodes each has."""
    row: Row = {"name": name, "envs": len(members)}
    for key in ("planned", "episodes", "failed", "missing"):
        row[key] = sum(one[key] for _, one, _ in members)
    causes: Counter[str] = Counter()
    for _, one, _ in members:
        causes.update(one["failed_by"])
    row["failed_by"] = dict(sorted(causes.items()))
    known = [estimates for _, _, estimates in members if estimates]
    if not known:
        return row
    row |= _named("success", stats.mean_of_rates([one["success"] for one in known]))
    for key in _VALUES:
        mine = [one[key] for one in known]
        row |= _named(key, (stats.mean_of_rates if all(one.weight for one in mine) else stats.mean_of_means)(mine))
    normalised = [one["normalised"] for one in known if "normalised" in one]
    if len(normalised) == len(known):
        row |= _named("normalised", stats.mean_of_means(normalised))
    played = [one for _, one, estimates in members if estimates]
    for key in (
        "turns",
        "tool_calls",
        "truncated",
        "invalid_actions",
        "empty_replies",
        "tokens_read",
        "tokens_written",
    ):
        if all(key in one for one in played):
            row[key] = sum(one[key] for one in played) / len(played)
    if prices.known and all("cost" in one for one in played):
        row["cost"] = sum(one["cost"] for one in played)
    return row


def _running(suite: Suite, found: Sequence[Outcome]) -> Row:
    """Return wall-clock time, retries and other statistics that depend on the machine."""
    seconds: dict[int, list[float]] = {}
    for one in found:
        seconds.setdefault(one.entry, []).append(one.seconds)
    return {
        "wall_seconds": _busy([(one.started, one.started + one.seconds) for one in found]),
        "seconds_per_episode": sum(one.seconds for one in found) / len(found) if found else 0.0,
        "agent_seconds": sum(one.agent_seconds for one in found),
        "env_seconds": sum(one.env_seconds for one in found),
        "retries": sum(one.attempts - 1 for one in found),
        "envs": {suite.entries[i].name: sum(spent) / len(spent) for i, spent in sorted(seconds.items())},
    }


def _busy(spans: Sequence[tuple[float, float]]) -> float:
    """Return the total time during which at least one episode was running, excluding pauses between runs."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total

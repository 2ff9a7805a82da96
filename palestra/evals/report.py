"""Write `report.html`, a self-contained page, and `table.csv` into an evaluation's folder.

Both are derived from `run.json`, `summary.json` and the stored episodes, so they can be regenerated at any time.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.errors import BadValue
from palestra.evals import published
from palestra.evals.folder import PAGE, SUMMARY, TABLE, EvaluationRecord, read_evaluation
from palestra.evals.outcomes import EPISODES
from palestra.evals.text import cells, interval, percent, sections, table_csv
from palestra.reports import html, ranges
from palestra.reports.svg import Chart, Point, Series, draw
from palestra.rollout.codec import from_json
from palestra.rollout.store import read_json
from palestra.rollout.types import Trajectory

SHOWN = 8  # number of episodes in the report
LOOKED_AT = 64  # number of episodes per environment from which the report's episodes are selected
MOST_RANGES = 60
MOST_LISTED = 200


def write_report(folder: str | Path) -> Path:
    """Write `report.html` and `table.csv` from the episodes stored so far."""
    record = read_evaluation(folder)
    summary = read_summary(record.folder)
    html.replace_file(record.folder / TABLE, html.utf8(table_csv(summary["table"])))
    return html.replace_file(record.folder / PAGE, html.utf8(page(record, summary, sample(record.folder))))


def read_summary(folder: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise BadValue(
            f"{folder} has no {SUMMARY} yet; run the same `palestra eval` command again to finish it"
        ) from err
    return summary


def page(record: EvaluationRecord, summary: Mapping[str, Any], episodes: Sequence[Trajectory] = ()) -> str:
    """Return the report as HTML."""
    table = summary["table"]
    parts = [_head(record, table), _tiles(table, summary["running"])]
    parts.append(html.section("Success, with 95% intervals", _successes(table["envs"])))
    for title, rows in sections(table):
        head, body = cells(rows)
        parts.append(
            html.section(f"By {title}" if len(rows) > 1 else title.capitalize(), html.table(head, body, named=True))
        )
    parts.append(html.section("Published results", _published(table.get("published"))))
    parts.append(html.section("Attempts", draw(pass_chart(table["envs"]))))
    parts.append(html.section("Episode endings", _endings(table["envs"])))
    parts.append(html.section("Judged again", _replays(summary.get("replay"))))
    parts.append(html.section("A sample of episodes", "".join(html.episode(one) for one in episodes)))
    parts.append(html.section("EvalSettings", _pinned(record)))
    return html.whole_page(record.title, parts)


def sample(folder: Path, count: int = SHOWN) -> list[Trajectory]:
    """Select a few solved and unsolved episodes, alternating between the environments."""
    path = folder / EPISODES
    if not path.exists():
        return []
    by_entry: dict[int, list[Mapping[str, Any]]] = {}
    for data in read_json(path):
        entry_episodes = by_entry.setdefault(data["meta"].get("entry", 0), [])
        if data["failure"] is None and data["turns"] and len(entry_episodes) < LOOKED_AT:
            entry_episodes.append(data)
    chosen = [
        html.mixed([from_json(data) for data in entry_episodes], count)
        for _, entry_episodes in sorted(by_entry.items())
    ]
    return list(_in_turn(chosen))[:count]


def pass_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Return a chart of pass@k and pass^k against k, averaged over the environments that have these values."""
    series = []
    for sign, name, style in (("@", "pass@k: any of k", "two"), ("^", "pass^k: all of k", "one")):
        ks = sorted(
            {int(key[5:]) for row in rows for key in row if key.startswith(f"pass{sign}") and key[5:].isdigit()}
        )
        points = []
        for k in ks:
            with_k = [row for row in rows if row.get(f"pass{sign}{k}") is not None]
            points.append(
                Point(x=k, y=sum(row[f"pass{sign}{k}"] for row in with_k) / len(with_k), text=f"{name}, k = {k}")
            )
        series.append(Series(name=name, style=style, points=points, dots=True))
    return Chart(
        title="Success with several attempts", series=series, x_label="k", span=(0.0, 1.0), form=_percent, legend=True
    )


def _percent(value: float) -> str:
    return f"{round(value * 100, 6):g}%"


def _successes(rows: Sequence[Mapping[str, Any]]) -> str:
    scored = [row for row in rows if row.get("success") is not None][:MOST_RANGES]
    intervals = [
        ranges.Range(
            name=row["name"],
            value=row["success"],
            low=row["success_low"],
            high=row["success_high"],
            marks=tuple(row[key] for key in ("random_success", "expert_success") if row.get(key) is not None),
        )
        for row in scored
    ]
    chart = ranges.draw("Success by environment", intervals, span=(0.0, 1.0), form=lambda value: f"{value * 100:.3g}%")
    return chart + (
        "<p>The thin marks show the success rates of the random player and the expert.</p>"
        if any(r.marks for r in intervals)
        else ""
    )


def _endings(rows: Sequence[Mapping[str, Any]]) -> str:
    ended = [row for row in rows if row.get("endings")]
    names = sorted({name for row in ended for name in row["endings"]})
    body = [[row["name"], *(str(row["endings"].get(name, "")) for name in names)] for row in ended]
    return html.table(["", *names], body, named=True) if ended else ""


def _published(data: Mapping[str, Any] | None) -> str:
    from html import escape

    if not data:
        return ""
    head, body = published.cells(data)
    listed = "".join(f"<li>{escape(line)}</li>" for line in published.notes(data))
    return html.table(head, body, named=True) + f"<ul>{listed}</ul>"


def _replays(replay: Mapping[str, Any] | None) -> str:
    """Return HTML that lists a rescored evaluation's replay counts and the episodes whose observations differ."""
    if replay is None:
        return ""
    counts = html.table(["replay", "episodes"], [[word, str(n)] for word, n in replay["counts"].items()], named=True)
    rows = [
        [one["env"], str(one["seed"]), str(one["member"]), one["replay"]] for one in replay["episodes"][:MOST_LISTED]
    ]
    return counts + (html.table(["environment", "seed", "attempt", "replay"], rows, named=True) if rows else "")


def _head(record: EvaluationRecord, table: Mapping[str, Any]) -> str:
    from html import escape

    total = table["total"]
    count = f"{total['episodes']} of {total['planned']} episodes"
    return f"<header><h1>{escape(record.suite.name)}</h1><p>{escape(str(record.agent['name']))}, {count}</p></header>"


def _tiles(table: Mapping[str, Any], running: Mapping[str, Any]) -> str:
    total = table["total"]
    tiles = [("success", percent(total.get("success")), _edges(total, "success"))]
    if total.get("normalised") is not None:
        tiles.append(("random=0, expert=1", f"{total['normalised']:.3f}", _edges(total, "normalised", "{:.3f}")))
    if total.get("return") is not None:
        tiles.append(("return", f"{total['return']:.3f}", _edges(total, "return", "{:.3f}")))
    if total.get("turns") is not None:
        tiles.append(("turns per episode", f"{total['turns']:.2f}", f"{total['truncated']:.1%} truncated"))
    if total.get("tokens_written"):
        tiles.append(("tokens per episode", f"{total['tokens_written']:,.0f}", f"{total['tokens_read']:,.0f} read"))
    if total.get("cost") is not None:
        tiles.append(("cost", f"${total['cost']:.4f}", "at the given prices"))
    each = f"{running['seconds_per_episode']:.2f} s per episode, {running['retries']} retries"
    tiles.append(("wall-clock", f"{running['wall_seconds']:,.1f} s", each))
    if total["failed"]:
        causes = ", ".join(f"{count} {where}" for where, count in total["failed_by"].items())
        tiles.append(("failed episodes", str(total["failed"]), f"{causes}; excluded from all statistics"))
    return html.tiles(tiles)


def _edges(row: Mapping[str, Any], key: str, form: str = "{:.1%}") -> str:
    return interval(row, key, lambda value: "-" if value is None else form.format(value)).partition("(")[2].rstrip(")")


def _pinned(record: EvaluationRecord) -> str:
    from html import escape

    versions = ", ".join(f"{name} {version}" for name, version in record.saved.get("versions", {}).items())
    command = shlex.join(map(str, record.saved.get("command", ())))
    plan = json.dumps(record.plan, indent=2)
    return (
        f"<pre>{escape(command)}</pre><p>{escape(versions)}</p>"
        f"<details><summary>ids, arguments, seeds, sampling, template</summary><pre>{escape(plan)}</pre></details>"
    )


def _in_turn(lists: Iterable[Sequence[Trajectory]]) -> Iterator[Trajectory]:
    """Yield the first item of each list, then the second item of each list, and so on."""
    waiting = [list(one) for one in lists]
    while any(waiting):
        for one in waiting:
            if one:
                yield one.pop(0)

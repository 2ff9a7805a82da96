"""Write `report.html` (a self-contained page) and `curve.png` for a run. Does not import torch.

Both are generated from `run.json`, `metrics.jsonl` and the stored trajectories, so they can be rebuilt at any time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.algorithms.registry import algorithm_names, get_algorithm
from palestra.optional import require
from palestra.options import BySize, flat_name
from palestra.progress import clock
from palestra.reports import html
from palestra.reports.svg import Chart, Point, Series, draw, thinned
from palestra.training.config_values import auto_value
from palestra.training.recipe import DEFAULT_ALGORITHM
from palestra.training.reporting.console import describe_tasks
from palestra.training.reporting.run_folder import Row, RunRecord, read_run, sample_episodes
from palestra.training.sections import SECTIONS
from palestra.training.warm_start_section import WarmStartConfig

if TYPE_CHECKING:
    from palestra.rollout.types import Trajectory

PAGE, CURVE = "report.html", "curve.png"


def write_page(folder: str | Path) -> Path:
    """Write `report.html` for a run, which may be unfinished."""
    record = read_run(folder)
    return html.replace_file(record.folder / PAGE, html.utf8(page(record, sample_episodes(record.folder))))


def write_curve(folder: str | Path) -> Path:
    """Write `curve.png`; raise MissingExtra if matplotlib is not installed."""
    record = read_run(folder)
    return html.replace_file(record.folder / CURVE, picture(record))


def page(record: RunRecord, episodes: Sequence[Trajectory] = ()) -> str:
    """Return the report as HTML."""
    sections = [
        _head(record),
        _tiles(record),
        html.section("Learning curve", draw(learning_curve(record))),
        html.section("Other metrics", "".join(_small(chart) for chart in small_charts(record)), "several"),
        html.section(f"Evaluations on {_evaluation_tasks(record)}", _evaluations(record)),
        html.section("Episodes of the last stored step", "".join(html.episode(t) for t in episodes)),
        html.section("Settings", _settings(record.config)),
        html.section("Versions and command", _provenance(record)),
    ]
    return html.whole_page(f"{record.title} - {record.algorithm}", sections)


def _evaluation_tasks(record: RunRecord) -> str:
    """Return "held-out tasks", or a description of the evaluated tasks in environments with few tasks."""
    return describe_tasks(record.evaluations[-1]) if record.evaluations else "held-out tasks"


def learning_curve(record: RunRecord) -> Chart:
    """Return a chart of the success rate over steps, in training and in evaluations."""
    # A step's episodes are sampled before its updates; its evaluation runs after them.
    training = [_point(row, "success", row["step"]) for row in record.steps if "success" in row]
    evaluated = [_point(row, "eval_success", row["step"] + 1) for row in record.evaluations]
    stages = record.stages
    marks = [(float(x), f"{turns} turns") for x, turns in stages] if len(stages) > 1 else []
    warm = any("warm_epoch" in row for row in record.evaluations)
    if warm:
        marks = [(0.0, "end of the warm start"), *marks]
    return Chart(
        title="Success over steps",
        series=[
            Series(name="training", style="one", points=training),
            Series(name=f"{_evaluation_tasks(record)}, with 95% interval", style="two", points=evaluated, dots=True),
        ],
        marks=marks,
        x_label="steps; negative: epochs of the warm start" if warm else "steps",
        span=(0.0, 1.0),
        form=_percent,
        legend=True,
    )


def _percent(value: float) -> str:
    return f"{round(value * 100, 6):g}%"


_SMALL: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("Level", "level", "{:g}".format),
    ("Turns per episode", "turns_per_episode", "{:g}".format),
    ("Return", "return", "{:g}".format),
    ("Tokens per episode", "tokens_per_episode", "{:g}".format),
    ("Tokens per reply", "tokens_per_reply", "{:g}".format),
    ("Entropy", "entropy", "{:g}".format),
    ("Entropy bonus", "entropy_coef", "{:g}".format),
    ("Entropy bonus, failed episodes", "entropy_coef_failed", "{:.3g}".format),
    ("Tokens in unsolved states", "unsolved", _percent),
    ("Learning rate", "lr", "{:g}".format),
    ("KL of the step", "step_kl", "{:g}".format),
    ("KL to the reference", "kl", "{:g}".format),
    ("Gradient norm", "grad_norm", "{:g}".format),
    ("Clipped tokens", "clip_fraction", _percent),
    ("Explained variance", "explained_variance", "{:g}".format),
    ("Groups with equal returns", "zero_variance", _percent),
    ("Truncated episodes", "truncated", _percent),
    ("Invalid actions", "invalid_actions", _percent),
    ("Cut replies", "cut_replies", _percent),
    ("Staleness", "staleness_mean", "{:g}".format),
    ("Failed episodes", "failures", "{:g}".format),
    ("Tokens per second", "tokens_per_second", "{:g}".format),
    ("Learned tokens per second", "learned_tokens_per_second", "{:g}".format),
    ("GPU memory (GiB)", "gpu_memory_gb", "{:g}".format),
    ("Loss", "loss", "{:g}".format),
    ("Preference accuracy", "accuracy", _percent),
)


def small_charts(record: RunRecord) -> list[Chart]:
    """Return one chart per metric that is not always zero, and success per environment if there are several."""
    charts = []
    for title, key, form in _SMALL:
        points = [Point(x=row["step"], y=row[key]) for row in record.steps if row.get(key) is not None]
        if key == "loss" and any("success" in row for row in record.steps):
            continue  # the loss of policy gradients is not informative
        if any(p.y for p in points):
            charts.append(_small_chart(title, points, form))
    by_env = sorted({key for row in record.rows for key in row if key.startswith("eval_success/")})
    for key in by_env:
        points = [Point(x=row["step"] + 1, y=row[key]) for row in record.evaluations if key in row]
        charts.append(_small_chart(key.partition("/")[2], points, _percent, span=(0.0, 1.0), style="two"))
    return charts


def _small_chart(
    title: str,
    points: Sequence[Point],
    form: Callable[[float], str],
    *,
    span: tuple[float, float] | None = None,
    style: str = "one",
) -> Chart:
    series = [Series(name=title, style=style, points=points)]
    return Chart(title=title, series=series, width=300, height=130, x_label="", span=span, form=form)


def picture(record: RunRecord) -> bytes:
    """Return the learning curve as a PNG image with a light background."""
    figure = require("matplotlib.figure", extra="train").Figure(figsize=(8, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    chart = learning_curve(record)
    for series, color in zip(chart.series, ("#8a94a6", "#1f6feb"), strict=True):
        points = list(series.points) if series.dots else thinned(series.points)
        if not points:
            continue
        xs = [p.x for p in points]
        axes.plot(xs, [p.y for p in points], color=color, lw=2 if series.dots else 1.2, label=series.name, zorder=3)
        if series.dots:
            axes.plot(xs, [p.y for p in points], "o", color=color, ms=4, zorder=4)
        banded = [p for p in points if p.low is not None and p.high is not None]
        lows, highs = [p.low for p in banded], [p.high for p in banded]
        axes.fill_between([p.x for p in banded], lows, highs, color=color, alpha=0.16, lw=0)
    for x, word in chart.marks:
        axes.axvline(x, color="#9aa4b2", lw=0.8, ls=(0, (4, 3)))
        axes.annotate(word, (x, 1), xytext=(3, -10), textcoords="offset points", fontsize=8, color="#57606a")
    axes.set(ylim=(0, 1), xlabel=chart.x_label, ylabel="success", title=f"{record.title}, {record.algorithm}")
    axes.yaxis.set_major_formatter(require("matplotlib.ticker", extra="train").PercentFormatter(1.0))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color="#d8dee4", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if any(series.points for series in chart.series):
        axes.legend(frameon=False, loc="best")
    out = BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})  # makes the file reproducible
    return out.getvalue()


# Parts of the page


def _head(record: RunRecord) -> str:
    many = f"{record.done} of {record.planned} steps" if record.planned else f"{record.done} steps"
    state = "finished" if record.finished else "not finished"
    return (
        f"<header><h1>{escape(record.title)}</h1><p>{escape(record.algorithm)} on {escape(record.model)}, "
        f"seed {record.config['run'].get('seed', 0)}, {many}, {state}</p></header>"
    )


def _tiles(record: RunRecord) -> str:
    tiles: list[tuple[str, str, str]] = []
    evaluations = record.evaluations
    if evaluations:
        first, last = evaluations[0], evaluations[-1]
        best = max(evaluations, key=lambda row: float(row["eval_success"]))
        tiles.append(("before training" if first["step"] < 0 else "first evaluation", *_rate(first)))
        tiles.append((f"after {last['step'] + 1} steps", *_rate(last)))
        tiles.append((f"best, after {max(0, best['step'] + 1)} steps", *_rate(best)))
        tiles.append(_change("turns per episode", evaluations, "eval_turns_per_episode"))
    spent = _spent(record.rows)
    if spent:
        total = sum(spent.values())
        shares = ", ".join(f"{name} {part / total:.0%}" for name, part in spent.items()) if total else ""
        tiles.append(("time", clock(total), shares))
    no_signal = sum(not row.get("signal", 1.0) for row in record.steps)
    if no_signal:
        tiles.append(("without learning signal", f"{no_signal} steps", f"of {len(record.steps)}"))
    failed = sum(row.get("failures", 0) for row in record.steps)
    if failed:
        tiles.append(("failed episodes", str(failed), "excluded from all metrics"))
    return html.tiles(tiles)


def _change(name: str, rows: Sequence[Row], key: str) -> tuple[str, str, str]:
    values = [row[key] for row in rows if key in row]
    return (name, f"{values[-1]:.2f}", f"{values[0]:.2f} at first") if values else (name, "", "")


def _rate(row: Row) -> tuple[str, str]:
    low, high = row.get("eval_success_low"), row.get("eval_success_high")
    return f"{row['eval_success']:.1%}", "" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _spent(rows: Sequence[Row]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith("seconds_"):
                name = key.removeprefix("seconds_")
                seconds[name] = seconds.get(name, 0.0) + value
    return seconds


def _small(chart: Chart) -> str:
    return f"<figure><figcaption>{escape(chart.title)}</figcaption>{draw(chart)}</figure>"


def _evaluations(record: RunRecord) -> str:
    rows = record.evaluations
    if not rows:
        return ""
    by_env = sorted({key for row in rows for key in row if key.startswith("eval_success/")})
    columns: list[tuple[str, str, str]] = [
        ("return", "eval_return", "{:.3f}"),
        ("turns", "eval_turns_per_episode", "{:.2f}"),
        ("tokens", "eval_tokens_per_episode", "{:.1f}"),
        ("invalid", "eval_invalid_actions", "{:.1%}"),
        ("failed", "eval_failures", "{}"),
        *((key.partition("/")[2], key, "{:.1%}") for key in by_env),
    ]
    columns = [column for column in columns if any(column[1] in row for row in rows)]
    head = ("steps", "success", "95% interval", *(column[0] for column in columns))
    body = [
        (
            str(row["step"] + 1),
            *_rate(row),
            *(form.format(row[key]) if row.get(key) is not None else "" for _, key, form in columns),
        )
        for row in rows
    ]
    return html.table(head, body)


def _settings(config: Mapping[str, Any]) -> str:
    """Return HTML that lists all settings by section and highlights those that differ from the default."""
    trained = not str(config["model"].get("name", "")).startswith("default:")
    lora = bool(config["model"].get("lora_rank"))
    name = config["algorithm"]["name"]
    algorithm = get_algorithm(name) if name in algorithm_names() else None
    warm_start = config.get("warm_start", {})
    imitation = WarmStartConfig(**{key: warm_start[key] for key in ("episodes", "player") if key in warm_start})
    resolved = asdict(imitation.resolved(trained=trained))
    parts = []
    for section, table in config.items():
        kind = (algorithm.config_class if algorithm else None) if section == "algorithm" else SECTIONS.get(section)
        options = {item.name: item for item in fields(kind)} if kind is not None else {}
        for key, value in table.items():
            item = options.get(key)
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            default = None
            if item is not None:
                defaults = algorithm.defaults if algorithm else {}
                pair = item.metadata.get("auto") or (item.default, item.default)
                default = auto_value(pair, flat_name(item), defaults, trained=trained, lora=lora)
            if (section, key) == ("algorithm", "name"):
                default = DEFAULT_ALGORITHM
            elif section == "warm_start" and default == 0:
                default = resolved[key]
            if value is None and isinstance(default, BySize):  # the run's rate is in its metrics
                default = imitation.rate if section == "warm_start" else default
                text, value = str(default), default
            same = value == default or (item is not None and not value and not default)
            hint = escape(item.metadata["help"]) if item is not None else ""
            style = "" if same else ' class="changed"'
            label = f"{section}.{key}"
            parts.append(f'<div{style} title="{hint}"><dt>{escape(label)}</dt><dd>{escape(text) or "-"}</dd></div>')
    return f'<dl class="settings">{"".join(parts)}</dl>'


def _provenance(record: RunRecord) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    command = f"<pre>{escape(shlex.join(record.command))}</pre>" if record.command else ""
    return (f"<p>{escape(versions)}</p>" if versions else "") + command


def _point(row: Row, key: str, x: int) -> Point:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    interval = "" if low is None or high is None else f" ({low:.1%} to {high:.1%})"
    return Point(x=x, y=row[key], low=low, high=high, text=f"after {x} steps: {row[key]:.1%}{interval}")

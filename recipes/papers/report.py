"""Tables and figures for the papers' questions, made from the data files in `results/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from files import DOCS
from iqm import Scores, interval, iqm
from plan import Row

Metric = Callable[[Row], float | None]
BANDS = 4  # maximum number of variants whose intervals are drawn as bands
DEFAULT_MODEL = "default:0.1M"  # its tables and figures are not labelled


def current(rows: Sequence[Row], question: str) -> dict[str, list[Row]]:
    """Return the runs to show, by model: those that finished, with the settings that were used last for their variant.

    If a seed was run twice, the later run counts.
    """
    named = [row for row in rows if row["question"] == question and not row["set"] and row["ended"] == "finished"]
    last = {(row["model"], row["task"], row["variant"]): row["settings"] for row in named}
    chosen = {
        (row["model"], row["task"], row["variant"], row["seed"]): row
        for row in named
        if last[row["model"], row["task"], row["variant"]] == row["settings"]
    }
    return {
        model: [row for row in chosen.values() if row["model"] == model] for model in sorted({k[0] for k in chosen})
    }


def final(row: Row) -> float | None:
    """Return the success rate after training, on tasks that no other evaluation used."""
    return None if row["final"] is None else float(row["final"])


def before(row: Row) -> float | None:
    """Return the success rate before RL."""
    return float(row["curve"]["success"][0]) if row["curve"].get("step", [None])[0] == 0 else None


def last_of(column: str) -> Metric:
    """Return a metric: the last value of a column in the curve."""
    return lambda row: float(row["curve"][column][-1]) if row["curve"].get(column) else None


def evaluated(name: str, key: str = "success") -> Metric:
    """Return a metric: a rate in one of the evaluations after training."""
    return lambda row: row["evaluations"].get(name, {}).get(key)


def collapsed(row: Row) -> float | None:
    """Return 1 if the last success rate is below half of the best one, otherwise 0."""
    rates = row["curve"].get("success")
    return float(rates[-1] < max(rates) / 2) if rates else None


def gain(row: Row) -> float | None:
    """Return the difference between the success rates in the last evaluation and before RL."""
    start, end = before(row), last_of("success")(row)
    return None if start is None or end is None else end - start


def scores_of(rows: Sequence[Row], metric: Metric) -> dict[str, list[float]]:
    """Return a metric of all runs by task, without the runs that do not have it."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        score = metric(row)
        if score is not None:
            scores.setdefault(row["task"], []).append(score)
    return scores


def cell(scores: Scores, form: str = ".1%") -> str:
    """Return the interquartile mean with its interval, or only the mean if there is one run per task."""
    if not scores:
        return ""
    text = format(iqm(scores), form)
    if max(len(values) for values in scores.values()) < 2:
        return text
    low, high = (format(bound, form) for bound in interval(scores))
    return f"{text} ({low} to {high})"


def matrix(
    rows: Sequence[Row], tasks: Sequence[str], variants: Sequence[str], metric: Metric, form: str = ".1%"
) -> str:
    """Return a table with a line per variant and a column per task, and the interquartile mean over all tasks."""
    present = [task for task in tasks if any(row["task"] == task for row in rows)]
    whole = ["all"] if len(present) > 1 else []
    lines = [f"| | {' | '.join([*present, *whole, 'seeds'])} |", "|---" * (len(present) + len(whole) + 2) + "|"]
    for variant in variants:
        mine = [row for row in rows if row["variant"] == variant]
        if mine:
            scores = scores_of(mine, metric)
            cells = [cell({task: scores[task]} if task in scores else {}, form) for task in present]
            # The mean over all tasks is comparable only if the variant has runs for every task.
            total = cell(scores, form) if all(task in scores for task in present) else ""
            seeds = counts([len({r["seed"] for r in mine if r["task"] == task}) for task in present])
            lines.append(f"| {' | '.join([variant, *cells, *([total] if whole else []), seeds])} |")
    return "\n".join(lines)


def listing(groups: Mapping[str, Sequence[Row]], columns: Mapping[str, tuple[Metric, str]]) -> str:
    """Return a table with a line per group of runs and a column per metric."""
    lines = [f"| | {' | '.join([*columns, 'seeds'])} |", "|---" * (len(columns) + 2) + "|"]
    for name, rows in groups.items():
        if rows:
            cells = [cell(scores_of(rows, metric), form) for metric, form in columns.values()]
            seeds = counts([len({r["seed"] for r in rows if r["task"] == task}) for task in {r["task"] for r in rows}])
            lines.append(f"| {' | '.join([name, *cells, seeds])} |")
    return "\n".join(lines)


def counts(numbers: Sequence[int]) -> str:
    """Return a range of numbers as text."""
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def by_variant(rows: Sequence[Row], variants: Sequence[str]) -> dict[str, list[Row]]:
    """Group runs by variant, in the given order."""
    return {name: [row for row in rows if row["variant"] == name] for name in variants}


def by_task_and_variant(rows: Sequence[Row], tasks: Sequence[str], variants: Sequence[str]) -> dict[str, list[Row]]:
    """Group runs by task and variant, in the given order."""
    return {
        f"{task}: {name}": [row for row in rows if row["task"] == task and row["variant"] == name]
        for task in tasks
        for name in variants
    }


def section(rows: Sequence[Row], question: str, command: str, text: Callable[[list[Row]], str]) -> str:
    """Return the text for a question: its tables by model, or the command that runs it if no run has finished."""
    parts = []
    models = current(rows, question)
    for model, mine in models.items():
        parts += [f"Model: `{model}`.", text(mine)] if len(models) > 1 or model != DEFAULT_MODEL else [text(mine)]
    others = [row for row in rows if row["question"] == question and row["ended"] != "finished"]
    if not parts:
        parts.append(f"No run has finished yet. Run `{command}`.")
    if others:
        parts.append(f"Stopped or failed runs, which are in the data file: {len(others)}.")
    return "\n\n".join(parts)


def draw(
    name: str,
    panels: Mapping[str, Mapping[str, Sequence[Row]]],
    column: str,
    label: str,
    *,
    x: str = "step",
    columns: int = 3,
) -> str:
    """Draw interquartile means by step, tokens or seconds, a panel per task and a line per variant; return the link."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    panels = {title: lines for title, lines in panels.items() if any(lines.values())}
    if not panels:
        return ""
    across = min(columns, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(max(5.0, 3.2 * across), 2.6 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for axis, (title, lines) in zip(axes, panels.items(), strict=False):
        for variant, rows in lines.items():
            _line(axis, variant, rows, column, x, band=len(lines) <= BANDS)
        axis.set_title(title, fontsize=9)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=7)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 100k instead of 100000
        if column == "success":
            axis.set_ylim(0.0, 1.02)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    variants = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if len(variants) > 1:
        figure.legend(variants.values(), variants.keys(), loc="outside upper center", ncols=4, fontsize=7)
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(label, fontsize=9)
    file = (
        f"{name}{_suffix({row['model'] for lines in panels.values() for rows in lines.values() for row in rows})}.png"
    )
    figure.savefig(Path(DOCS / "images" / file), dpi=120)
    return f"![{label} by {x}](images/{file})"


def _suffix(models: Iterable[str]) -> str:
    """Return the end of a figure's name, so that each model has its own figures."""
    names = sorted(Path(model).name.replace(":", "-") for model in {*models} - {DEFAULT_MODEL})
    return "".join(f"-{name}" for name in names)


def _line(axis: Any, variant: str, rows: Sequence[Row], column: str, x: str, *, band: bool) -> None:
    """Draw one variant: the interquartile mean over seeds at every step that all runs have."""
    curves = [row["curve"] for row in rows if row["curve"]]
    steps = sorted(set.intersection(*(set(curve["step"]) for curve in curves))) if curves else []
    if not steps:
        return
    places = [[curve["step"].index(step) for curve in curves] for step in steps]
    scores, positions = (
        [{"": [curve[name][i] for curve, i in zip(curves, at, strict=True)]} for at in places] for name in (column, x)
    )
    (line,) = axis.plot([iqm(at) for at in positions], [iqm(at) for at in scores], label=variant, linewidth=1.3)
    if band and len(curves) > 1:
        low, high = zip(*(interval(at, resamples=500) for at in scores), strict=True)
        axis.fill_between([iqm(at) for at in positions], low, high, color=line.get_color(), alpha=0.15, linewidth=0)

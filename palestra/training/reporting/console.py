"""Display a run's metrics in the terminal as a live block or as one line per step. Does not import torch."""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any, Protocol, TextIO

from palestra.progress import clock
from palestra.training.config_values import parse_weight
from palestra.training.reporting.metrics import sparkline

Row = Mapping[str, Any]
RECENT = 20  # number of recent steps used to estimate the remaining time
SPARK = 24  # maximum width of a sparkline
REDRAW = 0.1  # minimum seconds between two updates of a phase


class View(Protocol):
    """Interface for the console output of `palestra train`."""

    def note(self, text: str) -> None:
        """Print a message."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Display the metrics; `rows` contains all rows so far, and the last one is new."""

    def close(self) -> None:
        """Stop updating the display; later messages are printed below it."""


class Lines:
    """Print one line per step, for pipes and log files."""

    def __init__(self, out: TextIO, steps: int) -> None:
        self._out = out
        self._steps = steps

    def note(self, text: str) -> None:
        self._print(text)

    def rows(self, rows: Sequence[Row]) -> None:
        self._print(format_row(rows[-1], self._steps, left=seconds_left(rows, self._steps)))

    def close(self) -> None: ...

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class JsonLines:
    """Write one JSON object per row to `out` and messages to `err`."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def note(self, text: str) -> None:
        self._err.write(text + "\n")
        self._err.flush()

    def rows(self, rows: Sequence[Row]) -> None:
        self._out.write(json.dumps(rows[-1]) + "\n")
        self._out.flush()

    def close(self) -> None: ...


class Silent:
    """Print nothing."""

    def note(self, text: str) -> None: ...
    def rows(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None: ...


class Live:
    """Live block at the bottom of the terminal that is updated in place; messages are printed above it.

    The last line shows the phase that is running, since a step may take minutes.
    """

    def __init__(self, out: TextIO, config: Mapping[str, Any]) -> None:
        self._out = out
        self._config = config
        self._rows: Sequence[Row] = ()
        self._height = 0
        self._phases: dict[int, tuple[str, int | None, int]] = {}  # text, total and number of finished units
        self._keys = count()
        self._drawn = 0.0
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        self._draw(text + "\n")

    def rows(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._draw("")

    def close(self) -> None:
        self._phases.clear()
        if self._height:
            self._draw("")  # without the line of the last phase
        self._rows, self._height = (), 0

    def begin(self, text: str, total: int | None) -> int:
        """Show a phase below the block and return its key."""
        key = next(self._keys)
        self._phases[key] = text, total, 0
        self._draw("")
        return key

    def update(self, key: int, done: int, text: str | None) -> None:
        if key in self._phases:
            old, total, _ = self._phases[key]
            self._phases[key] = text or old, total, done
            if monotonic() - self._drawn >= REDRAW:
                self._draw("")

    def end(self, key: int) -> None:
        """Remove a phase; its line stays visible until the next redraw, so that short phases do not flicker."""
        self._phases.pop(key, None)

    def _draw(self, above: str) -> None:
        size = shutil.get_terminal_size()
        with self._lock:
            rows, phases = self._rows, list(self._phases.values())
            lines = format_block(rows, self._config, size.columns - 1) if rows else []
            lines += [format_phase(*phases[-1])[: size.columns - 1]] if phases else []
            lines = lines[-max(1, size.lines - 1) :]
            erase = f"\x1b[{self._height}F\x1b[J" if self._height else ""
            self._out.write(erase + above + "".join(text + "\n" for text in lines))
            self._out.flush()
            self._height, self._drawn = len(lines), monotonic()


def format_phase(text: str, total: int | None, done: int) -> str:
    """Format a phase as one line with a progress bar."""
    if total is None:
        return f"now       {text}"
    return f"now       {text} {_bar(done / max(1, total), 12)} {done}/{total}"


def format_row(row: Row, steps: int, *, left: float | None = None) -> str:
    """Format a metrics row as one line."""
    if row["step"] < 0:
        success = (
            f"success {_rate(row, 'eval_success')} on {describe_tasks(row)}"
            if "eval_success" in row
            else "not evaluated"
        )
        when = "before training"
        if "warm_epoch" in row:
            when = f"warm start: after epoch {row['warm_epoch']}" if row["warm_epoch"] else "before the warm start"
        return f"{when}: {success}"
    parts = [f"step {_of(row['step'] + 1, steps)}"]
    if "success" in row:
        parts.append(f"success {_rate(row, 'success')}")
    shown = _EPISODES + (_LEARNING if "success" in row else (_LOSS, *_LEARNING))
    parts += _format_metrics(row, [item for item in shown if row.get(item[1]) or item[1] not in _OMITTED_AT_ZERO])
    if "eval_success" in row:
        parts.append(f"evaluated {_rate(row, 'eval_success')}")
    if "final_success" in row:
        parts.append(f"final {_rate(row, 'final_success')}")
    if not row.get("signal", 1.0):
        parts.append("no learning signal")
    if row.get("failures"):
        parts.append(f"{row['failures']} episodes failed")
    times = "+".join(f"{row[name]:.1f}" for name in _phases([row]))
    if times:
        parts.append(f"{times} s")
    parts += _speed(row)
    if left:
        parts.append(f"about {clock(left)} left")
    return ", ".join(parts)


def format_block(rows: Sequence[Row], config: Mapping[str, Any], width: int = 80) -> list[str]:
    """Format the metrics so far as a few lines of at most `width` characters."""
    steps = int(config["run"]["steps"])
    trained = [row for row in rows if row["step"] >= 0]
    evaluations = [row for row in rows if "eval_success" in row]
    lines = [_headline(rows, config, steps, width)]
    played = [row for row in trained if "success" in row]
    if played:
        curve = sparkline([row["success"] for row in played], SPARK)
        lines.append(f"training  {_rate(played[-1], 'success'):<25} {curve}")
    if evaluations:
        lines.append(_evaluated(evaluations))
    if trained:
        last = trained[-1]
        lines += _wrapped("episodes", _format_metrics(last, _EPISODES), width) if played else []
        lines += _wrapped("learning", _format_metrics(last, _LEARNING if played else (_LOSS, *_LEARNING)), width)
    lines += _time(rows, steps)
    lines += _warnings(trained)
    return [text[:width].rstrip() for text in lines]


def seconds_left(rows: Sequence[Row], steps: int) -> float | None:
    """Estimate the remaining time from recent steps and the evaluations so far; None before the first step."""
    trained = [row for row in rows if row["step"] >= 0]
    if not trained or not steps:
        return None
    if "final_success" in trained[-1]:  # ended before its last step, because it reached its target
        return 0.0
    rest: int = steps - trained[-1]["step"] - 1
    recent: list[float] = [
        sum(row[n] for n in _phases([row]) if n != "seconds_evaluating") for row in trained[-RECENT:]
    ]
    evaluations: list[float] = [row["seconds_evaluating"] for row in trained if "seconds_evaluating" in row]
    share = len(evaluations) / len(trained)
    evaluating = share * sum(evaluations) / len(evaluations) if evaluations else 0.0
    return rest * (sum(recent) / len(recent) + evaluating)


# Label, metric name and number format.
_EPISODES = (
    ("return", "return", "{:.3f}"),
    ("turns", "turns_per_episode", "{:.1f}"),
    ("tokens per reply", "tokens_per_reply", "{:.1f}"),
    ("cut", "cut_replies", "{:.1%}"),
    ("truncated", "truncated", "{:.1%}"),
    ("invalid", "invalid_actions", "{:.1%}"),
    ("horizon", "horizon", "{}"),
    ("level", "level", "{}"),
)
_LOSS = ("loss", "loss", "{:.4f}")
_LEARNING = (
    ("entropy", "entropy", "{:.2f}"),
    ("KL", "step_kl", "{:.4f}"),
    ("reference KL", "kl", "{:.4f}"),
    ("clipped", "clip_fraction", "{:.1%}"),
    ("gradient", "grad_norm", "{:.2f}"),
    ("explained variance", "explained_variance", "{:.2f}"),
    ("equal returns", "zero_variance", "{:.1%}"),
    ("unsolved states", "unsolved", "{:.1%}"),
    ("staleness", "staleness_mean", "{:.1f}"),
    ("lr", "lr", "{:.1e}"),
)
# Metrics that a log line leaves out if they are zero.
_OMITTED_AT_ZERO = frozenset({"cut_replies", "truncated", "zero_variance", "unsolved", "staleness_mean"})


def _format_metrics(row: Row, wanted: Sequence[tuple[str, str, str]]) -> list[str]:
    return [f"{name} {form.format(row[key])}" for name, key, form in wanted if row.get(key) is not None]


def _wrapped(label: str, parts: Sequence[str], width: int) -> list[str]:
    """Format a label and several values in as few lines of at most `width` characters as possible."""
    lines = [f"{label:<9}"]
    for part in parts:
        if len(lines[-1]) > 9 and len(lines[-1]) + 3 + len(part) > width:
            lines.append(" " * 9)
        lines[-1] += (" " if len(lines[-1]) == 9 else "   ") + part
    return lines


def _headline(rows: Sequence[Row], config: Mapping[str, Any], steps: int, width: int) -> str:
    envs = [parse_weight(str(name))[0] for name in config["env"]["name"]]
    name = (envs[0] + (f" and {len(envs) - 1} more" if len(envs) > 1 else "")) if envs else "stored trajectories"
    left = f"{name}  {config['algorithm']['name']}  {config['model']['name']}"
    done = rows[-1]["step"] + 1 if rows else 0
    right = f"step {_of(done, steps)}" + (f" {_bar(done / steps, 12)}" if steps else "")
    room = max(0, width - len(right) - 2)
    return f"{left[:room]:<{room}}  {right}"


def _of(done: int, steps: int) -> str:
    return f"{done}/{steps}" if steps else str(done)  # `steps` is 0 until the data determines it


def _bar(share: float, width: int) -> str:
    full = min(width, int(share * width))
    return "━" * full + "─" * (width - full)


def describe_tasks(row: Row) -> str:
    """Describe an evaluation's tasks; an environment with few tasks uses the same ones in training and evaluation."""
    if row.get("eval_held_out", 1.0):
        return "held-out tasks"
    return "new episodes of the same tasks" if row.get("eval_seen") else "new seeds"


def describe_final(rows: Sequence[Row]) -> str | None:
    """Describe a run's final evaluation in one sentence; None if the run has not ended with one."""
    row = next((row for row in reversed(rows) if "final_success" in row), None)
    if row is None:
        return None
    text = f"final success {_rate(row, 'final_success')} on {describe_tasks(row)}"
    if "final_tasks" in row:
        text += (
            f" ({row['final_tasks']} distinct tasks, {row['final_seen']:.0%} of the episodes on tasks seen in training)"
        )
    return text


def _evaluated(evaluations: Sequence[Row]) -> str:
    curve = sparkline([row["eval_success"] for row in evaluations], SPARK)
    text = f"evaluated {_rate(evaluations[-1], 'eval_success'):<25} {curve}"
    if len(evaluations) > 1:
        best = max(evaluations, key=lambda row: float(row["eval_success"]))
        start = f"{evaluations[0]['eval_success']:.1%} " + ("before" if evaluations[0]["step"] < 0 else "at first")
        text += f"  {start}, best {best['eval_success']:.1%}"
    return text


def _time(rows: Sequence[Row], steps: int) -> list[str]:
    spent = {name: sum(row.get(name, 0.0) for row in rows) for name in _phases(rows)}
    total = sum(spent.values())
    if not total:
        return []
    shares = ", ".join(f"{name.removeprefix('seconds_')} {part / total:.0%}" for name, part in spent.items())
    left = seconds_left(rows, steps)
    end = "" if left is None else ", done" if not left else f", about {clock(left)} left"
    last = next((row for row in reversed(rows) if _speed(row)), {})
    speed = "   ".join(_speed(last))
    return [f"time      {clock(total)}{end}   {shares}", *([f"speed     {speed}"] if speed else [])]


def _speed(row: Row) -> list[str]:
    """Describe the speed and the GPU memory of a step."""
    parts = []
    for name, key in (("sampled", "tokens_per_second"), ("learned", "learned_tokens_per_second")):
        if key in row:
            parts.append(f"{name} {_short(row[key])} tokens/s")
    if "gpu_memory_gb" in row:
        parts.append(f"GPU memory {row['gpu_memory_gb']:.1f} GB")
    return parts


def _warnings(trained: Sequence[Row]) -> list[str]:
    recent = trained[-10:]
    no_signal = sum(not row.get("signal", 1.0) for row in recent)
    warnings = []
    if no_signal:
        warnings.append(f"warning   no learning signal in {no_signal} of the last {len(recent)} steps")
    failed = sum(row.get("failures", 0) for row in recent)
    if failed:
        by: dict[str, int] = {}
        for row in recent:
            for key in row:
                if key.startswith("failures_"):
                    by[key.removeprefix("failures_")] = by.get(key.removeprefix("failures_"), 0) + row[key]
        where = ", ".join(f"{name} {count}" for name, count in sorted(by.items()))
        warnings.append(
            f"warning   {failed} episodes failed in the last {len(recent)} steps" + (f" ({where})" * bool(by))
        )
    return warnings


def _phases(rows: Sequence[Row]) -> list[str]:
    """Return the names of the timing metrics in the rows, in order of appearance."""
    return list(dict.fromkeys(key for row in rows for key in row if key.startswith("seconds_")))


def _rate(row: Row, key: str) -> str:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    interval = "" if low is None or high is None else f" ({low:.1%} to {high:.1%})"
    return f"{row[key]:.1%}{interval}"


def _short(number: float) -> str:
    if not math.isfinite(number) or number < 1000:
        return f"{number:.0f}"
    return f"{number / 1000:.1f}k" if number < 1e6 else f"{number / 1e6:.1f}M"

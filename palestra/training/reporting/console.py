"""Metrics of a run so far -> what its terminal shows: a block that is redrawn, or a line a step. No torch here."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TextIO

from palestra.training.reporting.metrics import sparkline

Row = Mapping[str, Any]
RECENT = 20  # steps that say how long the rest will take
SPARK = 24


class View(Protocol):
    """What `palestra train` shows while it runs."""

    def note(self, text: str) -> None:
        """Something that is said once."""

    def rows(self, rows: Sequence[Row]) -> None:
        """All rows so far; the last one is new."""

    def end(self) -> None:
        """No more rows will come; what is said from now on stands below them."""


class Lines:
    """A line a step, for pipes and log files."""

    def __init__(self, out: TextIO, steps: int) -> None:
        self._out = out
        self._steps = steps

    def note(self, text: str) -> None:
        self._print(text)

    def rows(self, rows: Sequence[Row]) -> None:
        self._print(line(rows[-1], self._steps, left=seconds_left(rows, self._steps)))

    def end(self) -> None: ...

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class JsonLines:
    """A row a line for machines; what is said beside goes to `err`."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def note(self, text: str) -> None:
        self._err.write(text + "\n")
        self._err.flush()

    def rows(self, rows: Sequence[Row]) -> None:
        self._out.write(json.dumps(rows[-1]) + "\n")
        self._out.flush()

    def end(self) -> None: ...


class Silent:
    """Nothing."""

    def note(self, text: str) -> None: ...
    def rows(self, rows: Sequence[Row]) -> None: ...
    def end(self) -> None: ...


class Live:
    """One block at the end of the terminal, redrawn in place; notes stay above it."""

    def __init__(self, out: TextIO, config: Mapping[str, Any]) -> None:
        self._out = out
        self._config = config
        self._rows: Sequence[Row] = ()
        self._height = 0

    def note(self, text: str) -> None:
        self._draw(text + "\n")

    def rows(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._draw("")

    def end(self) -> None:
        self._rows, self._height = (), 0

    def _draw(self, above: str) -> None:
        size = shutil.get_terminal_size()
        shown = block(self._rows, self._config, size.columns - 1)[: max(1, size.lines - 1)] if self._rows else []
        erase = f"\x1b[{self._height}F\x1b[J" if self._height else ""
        self._out.write(erase + above + "".join(text + "\n" for text in shown))
        self._out.flush()
        self._height = len(shown)


def line(row: Row, steps: int, *, left: float | None = None) -> str:
    """One row in one line."""
    if row["step"] < 0:
        known = f"success {_rate(row, 'eval_success')} on held-out seeds" if "eval_success" in row else "not evaluated"
        return f"at the start: {known}"
    parts = [f"step {_of(row['step'] + 1, steps)}"]
    if "success" in row:
        parts.append(f"success {_rate(row, 'success')}")
    for name, key, form in (
        ("loss", "loss" if "success" not in row else "", ".4f"),
        ("return", "return", ".3f"),
        ("turns", "turns_per_episode", ".1f"),
        ("level", "level", "d"),
        ("horizon", "horizon", "d"),
        ("entropy", "entropy", ".2f"),
        ("KL", "kl", ".4f"),
    ):
        if row.get(key) is not None:
            parts.append(f"{name} {row[key]:{form}}")
    if "eval_success" in row:
        parts.append(f"held out {_rate(row, 'eval_success')}")
    if not row.get("signal", 1.0):
        parts.append("no learning signal")
    if row.get("failures"):
        parts.append(f"{row['failures']} episodes failed")
    spent = "+".join(f"{row[name]:.1f}" for name in _phases([row]))
    if spent:
        parts.append(f"{spent} s")
    if left:
        parts.append(f"about {clock(left)} left")
    return ", ".join(parts)


def block(rows: Sequence[Row], config: Mapping[str, Any], width: int = 80) -> list[str]:
    """All rows so far in a few lines of at most `width` characters."""
    steps = int(config["steps"])
    trained = [row for row in rows if row["step"] >= 0]
    judged = [row for row in rows if "eval_success" in row]
    found = [_headline(rows, config, steps, width)]
    played = [row for row in trained if "success" in row]
    if played:
        curve = sparkline([row["success"] for row in played], SPARK)
        found.append(f"training  {_rate(played[-1], 'success'):<21} {curve}")
    if judged:
        found.append(_held_out(judged))
    if trained:
        last = trained[-1]
        found += [f"episodes  {_figures(last, _EPISODES)}"] if played else []
        found.append(f"learning  {_figures(last, _LEARNING if played else (_LOSS, *_LEARNING))}")
    found += _time(rows, steps)
    found += _warnings(trained)
    return [text[:width].rstrip() for text in found]


def seconds_left(rows: Sequence[Row], steps: int) -> float | None:
    """What the recent steps, and the evaluations so far, say about the rest; None before the first step."""
    trained = [row for row in rows if row["step"] >= 0]
    if not trained or not steps:
        return None
    rest: int = steps - trained[-1]["step"] - 1
    recent: list[float] = [
        sum(row[n] for n in _phases([row]) if n != "seconds_evaluating") for row in trained[-RECENT:]
    ]
    judged: list[float] = [row["seconds_evaluating"] for row in trained if "seconds_evaluating" in row]
    share = len(judged) / len(trained)
    evaluating = share * sum(judged) / len(judged) if judged else 0.0
    return rest * (sum(recent) / len(recent) + evaluating)


def clock(seconds: float) -> str:
    """1:05, or 2:03:04 from an hour up."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


# name, key, how it is written
_EPISODES = (
    ("turns", "turns_per_episode", "{:.1f}"),
    ("return", "return", "{:.3f}"),
    ("truncated", "truncated", "{:.1%}"),
    ("invalid", "invalid_actions", "{:.1%}"),
    ("horizon", "horizon", "{}"),
    ("level", "level", "{}"),
)
_LOSS = ("loss", "loss", "{:.4f}")
_LEARNING = (
    ("entropy", "entropy", "{:.2f}"),
    ("KL", "kl", "{:.4f}"),
    ("clipped", "clip_fraction", "{:.1%}"),
    ("gradient", "grad_norm", "{:.2f}"),
    ("explained", "explained_variance", "{:.2f}"),
    ("lr", "lr", "{:.1e}"),
)


def _figures(row: Row, wanted: Sequence[tuple[str, str, str]]) -> str:
    return "   ".join(f"{name} {form.format(row[key])}" for name, key, form in wanted if row.get(key) is not None)


def _headline(rows: Sequence[Row], config: Mapping[str, Any], steps: int, width: int) -> str:
    envs = [str(env).partition("=")[0] for env in config["env"]]
    name = (envs[0] + (f" and {len(envs) - 1} more" if len(envs) > 1 else "")) if envs else "stored trajectories"
    left = f"{name}  {config['algo']}  {config['model']}"
    done = rows[-1]["step"] + 1 if rows else 0
    right = f"step {_of(done, steps)}" + (f" {_bar(done / steps, 12)}" if steps else "")
    room = max(0, width - len(right) - 2)
    return f"{left[:room]:<{room}}  {right}"


def _of(done: int, steps: int) -> str:
    return f"{done}/{steps}" if steps else str(done)  # 0: as many as the data asks for


def _bar(share: float, width: int) -> str:
    full = min(width, int(share * width))
    return "━" * full + "─" * (width - full)


def _held_out(judged: Sequence[Row]) -> str:
    curve = sparkline([row["eval_success"] for row in judged], SPARK)
    text = f"held out  {_rate(judged[-1], 'eval_success'):<21} {curve}"
    if len(judged) > 1:
        best = max(judged, key=lambda row: float(row["eval_success"]))
        start = f"{judged[0]['eval_success']:.1%} at first" if judged[0]["step"] >= 0 else ""
        start = start or f"{judged[0]['eval_success']:.1%} before"
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
    speed = rows[-1].get("tokens_per_second")
    rate = "" if speed is None else f"   {_short(speed)} tokens/s"
    return [f"time      {clock(total)}{end}   {shares}{rate}"]


def _warnings(trained: Sequence[Row]) -> list[str]:
    recent = trained[-10:]
    flat = sum(not row.get("signal", 1.0) for row in recent)
    found = [f"warning   no learning signal in {flat} of the last {len(recent)} steps"] if flat else []
    failed = sum(row.get("failures", 0) for row in recent)
    if failed:
        by: dict[str, int] = {}
        for row in recent:
            for key in row:
                if key.startswith("failures_"):
                    by[key.removeprefix("failures_")] = by.get(key.removeprefix("failures_"), 0) + row[key]
        where = ", ".join(f"{name} {count}" for name, count in sorted(by.items()))
        found.append(f"warning   {failed} episodes failed in the last {len(recent)} steps" + (f" ({where})" * bool(by)))
    return found


def _phases(rows: Sequence[Row]) -> list[str]:
    """Names of the times that rows tell, in order of appearance."""
    return list(dict.fromkeys(key for row in rows for key in row if key.startswith("seconds_")))


def _rate(row: Row, key: str) -> str:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    interval = "" if low is None or high is None else f" [{low * 100:.1f}, {high * 100:.1f}]"
    return f"{row[key]:.1%}{interval}"


def _short(number: float) -> str:
    if not math.isfinite(number) or number < 1000:
        return f"{number:.0f}"
    return f"{number / 1000:.1f}k" if number < 1e6 else f"{number / 1e6:.1f}M"

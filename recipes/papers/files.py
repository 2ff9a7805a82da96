"""Data files with the results of all runs, and the pages that contain their tables."""

from __future__ import annotations

import fcntl
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from plan import Row

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PHASES = ("seconds_sampling", "seconds_waiting", "seconds_learning")

_file = Lock()


def ended(code: int | None) -> str:
    """Return the text in the data file for an exit code of `train`."""
    return "stopped" if code is None else "finished" if code == 0 else f"failed with exit code {code}"


def results(path: Path) -> list[Row]:
    """Return the results of all runs so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Append a result to a data file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _file, path.open("a") as file:
        file.write(json.dumps(row) + "\n")


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Lock a run, so that one process at a time makes it; yields False if another process is making it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder.name}: another process is making this run", flush=True)
            yield False
        else:
            yield True


def remove_training_state(folder: Path) -> None:
    """Delete from a finished run what only a continued run needs, which is most of its size; keep its models."""
    for state in folder.rglob("*.pt"):
        state.unlink()


def curve(rows: Sequence[Mapping[str, Any]], episodes: int) -> dict[str, list[float]]:
    """Return the evaluations of a run by column; `tokens` (sampled) and `seconds` are totals without evaluations."""
    columns: dict[str, list[float]] = defaultdict(list)
    tokens = seconds = entropy = 0.0
    for row in rows:
        tokens += episodes * row.get("tokens_per_episode", 0.0)
        seconds += sum(row.get(phase, 0.0) for phase in PHASES)
        entropy = row.get("entropy", entropy)
        if "eval_success" in row:
            columns["step"].append(row["step"] + 1)
            columns["success"].append(round(row["eval_success"], 4))
            columns["turns"].append(round(row["eval_turns_per_episode"], 3))
            columns["tokens"].append(round(tokens))
            columns["seconds"].append(round(seconds, 1))
            columns["entropy"].append(round(entropy, 4))
            for name in row:
                if name.startswith("eval_success/"):  # one column per environment, if there are several
                    columns[name.removeprefix("eval_")].append(round(row[name], 4))
    return dict(columns)


def finished(rows: Sequence[Row], key: Mapping[str, Any]) -> bool:
    """Return whether a run with these fields has finished; runs that failed or were stopped are repeated."""
    return any(row["ended"] == "finished" and all(row[name] == key[name] for name in key) for row in rows)


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the text between the markers `<!-- name: start -->` and `<!-- name: end -->` on a page."""
    start, end = f"<!-- {name}: start -->\n", f"<!-- {name}: end -->"
    page = path.read_text()
    if start not in page or end not in page:
        raise ValueError(f"{path} has no markers for {name!r}")
    head, _, rest = page.partition(start)
    _, _, tail = rest.partition(end)
    path.write_text(f"{head}{start}\n{text}\n\n{end}{tail}")

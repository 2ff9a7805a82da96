"""Write the generated pages of the docs site to docs/generated: gallery, API reference, results and benchmarks.

    python scripts/docs_pages.py docs/generated

The gallery plays episodes (see docs_gallery.py), the reference lists the public names of each module, the results come
from the runs recorded in recipes/papers/results/ and from docs/data/experiments.toml, and the benchmarks from
docs/data/benchmarks.toml.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import docs_gallery
import docs_tables

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "docs" / "data" / "benchmarks.toml"
RUNS = ROOT / "recipes" / "papers" / "results"

MODULES = {  # module -> description; each has a page with the names in its __all__
    "palestra": "environments, training, evaluation and servers: the functions that most scripts need",
    "palestra.agents": "agents that act in environments, and context policies",
    "palestra.algorithms": "algorithms, their settings, advantages and losses",
    "palestra.conformance": "tests of the invariants of an environment",
    "palestra.engines": "inference engines",
    "palestra.errors": "exceptions",
    "palestra.evals": "suites, evaluations and comparisons",
    "palestra.grading": "graders for math, code and questions",
    "palestra.plugins": "entry points and modules that register names",
    "palestra.registry": "ids, specifications and factories of environments",
    "palestra.remote": "environments behind a URL",
    "palestra.rollout": "tasks, trajectories, collection and storage of episodes",
    "palestra.server": "the environment server",
    "palestra.tools": "tools that an agent can call",
    "palestra.training": "settings and results of training runs",
    "palestra.vector": "many environments in parallel",
    "palestra.viewer": "the web viewer as an ASGI application",
    "palestra.wrappers": "wrappers around environments",
}


def public_names(module: str) -> list[str]:
    """Return the functions and classes that a module exports, without the submodules."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [
        name for name, value in vars(found).items() if isinstance(value, type) and value.__module__ == module
    ]
    return [
        name for name in names if not hasattr(getattr(found, name), "__path__") and f"{module}.{name}" not in MODULES
    ]


def reference_page(module: str) -> str:
    """Return the page of a module: directives from which mkdocstrings writes signatures and docstrings."""
    lines = [f"# {module}\n", f"This module contains {MODULES[module]}.\n"]
    lines += [f"::: {module}", "    options:", "      members:"]
    names = public_names(module)
    hidden = [name for name in names if _shares_its_name_with_a_file(module, name)]
    lines += [f"        - {name}" for name in names if name not in hidden]
    for name in hidden:
        value = getattr(importlib.import_module(module), name)
        lines += ["", f"::: {value.__module__}.{name}", "    options:", "      show_root_heading: true"]
    return "\n".join([*lines, ""])


def _shares_its_name_with_a_file(module: str, name: str) -> bool:
    """Return whether `module.name` is also a file, such as rollout/collect.py, which would be shown instead."""
    path = importlib.import_module(module).__file__ or ""
    return Path(path).name == "__init__.py" and Path(path).with_name(f"{name}.py").exists()


def reference_index() -> str:
    rows = [f"| [`{module}`]({module}.md) | {text} |" for module, text in MODULES.items()]
    text = "Everything that is not listed on these pages may change without notice.\n"
    return "\n".join(["# API reference\n", text, "| module | contents |\n|---|---|", *rows, ""])


def benchmarks_page(tables: Mapping[str, Any]) -> str:
    """Return the page for docs/data/benchmarks.toml."""
    text = (
        "Each row was measured with the script in its last column, which you can run on your own machine. Ratios were "
        "measured in one run on one machine. The linked pages describe the measurements.\n"
    )
    parts = ["# Benchmarks\n", text]
    for area in tables["area"]:
        parts.append(f"## {area['title']}\n")
        parts.append(f"{area['text']}\n")
        parts.append("| measurement | result | compared with | hardware | script |\n|---|---|---|---|---|")
        for row in area["row"]:
            cells = (row["what"], row["result"], row.get("compared", "-"), row["hardware"], f"`{row['script']}`")
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def results_page(runs: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """Return the page with every recorded run, grouped by game, with a chart per game in `folder`."""
    text = (
        f"These {len(runs)} runs used the default settings, except where the first column names a variant. The data "
        "are in `recipes/papers/results/`, and [Experiments](../experiments.md#default-settings-on-other-seeds) "
        "describes how they were made. Success rates are fractions of 256 held-out tasks.\n"
    )
    parts = ["# Results\n", "## Experiments\n"]
    for table in docs_tables.tables():
        parts.append(f"### {table['title']}\n")
        parts.append(f"`{table['command']}`; [description](../experiments.md#{table['anchor']})\n")
        parts.append(f"{docs_tables.markdown(table)}\n")
    parts += ["## Recorded runs with default settings\n", text]
    ordered = sorted(runs, key=lambda run: (run["game"], run.get("label") or "", run["seed"]))
    for game, group in groupby(ordered, key=lambda run: run["game"]):
        members = list(group)
        parts.append(f"### {game}\n")
        parts.append(f"`{members[0]['env']}`, {members[0]['model']}, target {members[0]['target']:.0%}\n")
        if any(len(run["success"]) > 1 for run in members):
            name = f"results-{game}.svg"
            draw_curves(members, folder / name)
            parts.append(f"![Success rate by step, {game}]({name})\n")
        parts.append(
            "| variant | seed | before | best | steps | target reached at | final | seconds | hardware | ended |"
        )
        parts.append("|---|---|---|---|---|---|---|---|---|---|")
        parts += [_run_row(run) for run in members]
        parts.append("")
    return "\n".join(parts)


def _run_row(run: Mapping[str, Any]) -> str:
    curve = [value for _, value in run["success"]]
    final = run.get("final")
    cells = (
        run.get("label") or "defaults",
        str(run["seed"]),
        f"{curve[0]:.1%}" if curve else "-",
        f"{max(curve):.1%}" if curve else "-",
        str(run["steps"]),
        "-" if run.get("reached") is None else str(run["reached"]),
        "-" if final is None else f"{final:.1%}",
        str(run["seconds"]),
        run.get("hardware") or "-",
        run["ended"],
    )
    return f"| {' | '.join(cells)} |"


def draw_curves(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw success by step for several runs as an SVG file that is the same in every build."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = path.name
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        if len(run["success"]) > 1:
            steps, values = zip(*run["success"], strict=True)
            axes.plot(
                steps, values, marker=".", linewidth=1.2, label=f"seed {run['seed']}, {run.get('label') or 'defaults'}"
            )
    axes.axhline(runs[0]["target"], linestyle=":", color="gray", label="target")
    axes.set(xlabel="step", ylabel="success on held-out tasks", ylim=(0, 1.02))
    axes.legend(fontsize=6, loc="lower right")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="Folder for the pages; its contents are replaced.")
    out: Path = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    docs_gallery.write(out / "gallery")
    reference = out / "reference"
    reference.mkdir()
    (reference / "index.md").write_text(reference_index())
    for module in MODULES:
        (reference / f"{module}.md").write_text(reference_page(module))
    (out / "benchmarks.md").write_text(benchmarks_page(tomllib.loads(BENCHMARKS.read_text())))
    runs = [
        json.loads(line) for path in sorted(RUNS.glob("stability*.jsonl")) for line in path.read_text().splitlines()
    ]
    (out / "results.md").write_text(results_page(runs, out))


if __name__ == "__main__":
    main()

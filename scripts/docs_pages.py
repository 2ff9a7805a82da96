"""Write the generated pages of the docs site to docs/generated: gallery, API reference, curves and benchmarks.

    python scripts/docs_pages.py docs/generated

The gallery plays episodes (see docs_gallery.py), the reference lists the public names of each module, the learning
curves are those of the runs in recipes/papers/results/stability.jsonl, and the benchmarks come from
docs/data/benchmarks.toml.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import docs_gallery

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "docs" / "data" / "benchmarks.toml"
RUNS = ROOT / "recipes" / "papers" / "results" / "stability.jsonl"
DEFAULTS = "defaults"  # label of the runs with the current defaults

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


def curves_page(runs: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """Return the page with the learning curves of all recorded runs, one chart per game, which are in `folder`."""
    text = (
        f"The charts show all {len(runs)} runs of [Default settings on other "
        "seeds](../experiments.md#default-settings-on-other-seeds), also those that failed or were stopped. Runs with "
        "other settings or earlier defaults are gray; [Runs with default settings](../stability-runs.md) lists them "
        "with their settings. Success rates are fractions of 256 held-out tasks.\n"
    )
    parts = ["# Learning curves\n", text]
    for game, group in groupby(sorted(runs, key=lambda run: run["game"]), key=lambda run: run["game"]):
        members = list(group)
        name = f"curves-{game}.svg"
        draw_curves(members, folder / name)
        newest = _shown(members)[-1]
        parts.append(f"## {game}\n")
        parts.append(f"`{newest['env']}`, {newest['model']}, target {newest['target']:.0%}\n")
        parts.append(f"![Success rate by step, {game}]({name})\n")
    return "\n".join(parts)


def _shown(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs of one game that its chart emphasizes: those with the default settings or else the commonest."""
    labels = Counter(run["label"] for run in runs)
    label = DEFAULTS if DEFAULTS in labels else labels.most_common(1)[0][0]
    return [run for run in runs if run["label"] == label]


def draw_curves(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw success by step for the runs of one game as an SVG file that is the same in every build."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = path.name
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    axes = figure.subplots()
    shown = _shown(runs)
    seeds = sorted({run["seed"] for run in shown})
    for run in runs:
        if run not in shown and run["success"]:
            axes.plot(*zip(*run["success"], strict=True), color="#cccccc", linewidth=0.8, label="other settings")
    for run in sorted(shown, key=lambda run: int(run["seed"])):
        if run["success"]:
            color = f"C{seeds.index(run['seed'])}"
            name = f"seed {run['seed']}" + (f", {run['label']}" if run["label"] != DEFAULTS else "")
            axes.plot(*zip(*run["success"], strict=True), color=color, marker=".", linewidth=1.2, label=name)
    axes.axhline(shown[-1]["target"], linestyle=":", color="black", linewidth=1, label="target")
    axes.set(xlabel="step", ylabel="success on held-out tasks", ylim=(0, 1.02))
    axes.margins(x=0.02)
    lines, names = axes.get_legend_handles_labels()
    legend = dict(zip(names, lines, strict=True))  # one entry per name
    figure.legend(legend.values(), legend.keys(), fontsize=8, loc="outside right upper")
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
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()]
    (out / "curves.md").write_text(curves_page(runs, out))


if __name__ == "__main__":
    main()

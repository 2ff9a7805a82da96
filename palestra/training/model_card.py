"""Model card for a trained model: the README.md that the Hugging Face hub displays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palestra.training.reporting.run_folder import RunRecord

_SECTIONS = ("env", "sampling", "algorithm", "optimizer", "warm_start", "run")


def model_card(record: RunRecord, name: str) -> str:
    """Return the card of a run's model: what it was trained on, its measured success rates, and how to use it."""
    base = record.model
    pretrained = "/" in base and not Path(base).exists()
    header = ["library_name: transformers", "tags:", "- palestra", "- reinforcement-learning", f"- {record.algorithm}"]
    if pretrained:
        header.insert(0, f"base_model: {base}")
    envs = [str(env).partition("=")[0] for env in record.config["env"]["name"]]
    env = envs[0] if envs else "game:GuessTheNumber-v0-easy"
    started = f"`{base}`" if pretrained or not base.startswith("default:") else f"an untrained model ({base})"
    trained_on = ", ".join(f"`{one}`" for one in envs) or "stored episodes"
    summary = (
        f"This model was trained with Palestra on {trained_on}, with the algorithm `{record.algorithm}`, starting from "
        f"{started}. The run made {record.done} of {record.planned} steps."
    )
    note = (
        "The folder is in Hugging Face format, so transformers and vLLM load it as well. During training, prompts were "
        "built with the model's chat template."
    )
    parts = [
        "---\n" + "\n".join(header) + "\n---",
        f"# {name}",
        summary,
        _results(record),
        "## Use",
        f"```sh\npalestra eval {env} --model {name}\npalestra train --env {env} --model {name}\n```",
        note,
        "## Settings",
        f"```json\n{json.dumps(_settings(record.config), indent=1)}\n```",
        f"Versions: {', '.join(f'{package} {version}' for package, version in record.versions.items())}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _results(record: RunRecord) -> str:
    """Return a table with the first, the best and the last evaluation, and the final one on fresh tasks."""
    evaluations = record.evaluations
    if not evaluations:
        return "The run was not evaluated."
    best = max(evaluations, key=lambda row: row["eval_success"])
    rows = [("before training", evaluations[0]), ("best", best), ("last", evaluations[-1])]
    if evaluations[0]["step"] >= 0:
        rows = rows[1:]
    lines = ["## Results", "", "| evaluation | after step | success | 95% interval |", "|---|---|---|---|"]
    lines += [f"| {label} | {max(0, row['step'] + 1)} | {_rates(row, 'eval_success')} |" for label, row in rows]
    final = next((row for row in reversed(record.rows) if "final_success" in row), None)
    if final is not None:
        lines.append(f"| fresh tasks, last model | {record.done} | {_rates(final, 'final_success')} |")
    return "\n".join(lines)


def _rates(row: Mapping[str, Any], key: str) -> str:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    interval = "" if low is None or high is None else f"{low:.1%} to {high:.1%}"
    return f"{row[key]:.1%} | {interval}"


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for the card, without the folder of the run, which may contain private names."""
    settings = {name: dict(config[name]) for name in _SECTIONS if name in config}
    settings.get("run", {}).pop("out", None)
    return settings

"""Settings of the runs: defaults, hardware, hashes by which finished runs are found, and command-line flags."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from plan import Run

from palestra.algorithms.registry import options_of
from palestra.training.recipe import FLAT, from_mapping
from palestra.training.resume import ADDED

LARGE_BATCHES: dict[str, Any] = {"token_budget": 65536, "device": "cuda"}  # on a GPU; does not change the loss
SHARED_TOKENS = 131072  # maximum number of tokens per micro-batch, summed over all runs that share a GPU
SHARED_CACHE = 48.0  # gigabytes for the KV caches of all runs that share a GPU
REPEATABLE = ("env", "eval_env", "data", "import", "stop")  # flags that are repeated for several values


def digest(settings: Mapping[str, Any]) -> str:
    """Return a hash of the resolved settings, defaults included, without seed, folder and hardware.

    A setting that older runs do not have is omitted if it has the value of these runs, so that their hashes stay valid.
    """
    tables = from_mapping(settings).to_dict()
    for name in ("seed", "out", "device", "threads", "keep"):
        tables["run"].pop(name)
    tables["sampling"].pop("rollout_workers")
    tables["sampling"]["kv_cache_gb"] = 0.0  # the default; other values depend on the machine
    for (table, name), earlier in ADDED.items():
        if name in tables[table] and tables[table][name] == earlier:
            del tables[table][name]
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:12]


def hardware(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that depend on the machine."""
    if not args.gpu:
        return {"device": "cpu", "threads": 1}
    return gpu_settings(args.jobs, args.workers, args.gpu_share)


def gpu_settings(jobs: int, workers: int, share: float = 1.0) -> dict[str, Any]:
    """Return the settings of one of `jobs` runs that share a GPU, or the fraction `share` of its memory.

    A run that has the GPU to itself uses up to 60% of the free memory for its KV cache.
    """
    tokens = min(LARGE_BATCHES["token_budget"], int(share * SHARED_TOKENS) // jobs)
    cache = {"kv_cache_gb": share * SHARED_CACHE / jobs} if share < 1.0 or jobs > 1 else {}
    return {**LARGE_BATCHES, "token_budget": tokens, "rollout_workers": workers, **cache}


def fraction(text: str) -> float:
    """Return a number above 0 and at most 1 that was given as text."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number <= 1.0:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and at most 1; got {text!r}")
    return number


def add_gpu_flags(parser: argparse.ArgumentParser, workers: int) -> None:
    """Add the flags for runs on a GPU to the parser of a script; `workers` is the default of `--workers`."""
    parser.add_argument("--gpu", action="store_true", help="Train on the GPU with large micro-batches.")
    parser.add_argument(
        "--workers",
        type=int,
        default=workers,
        help=f"More processes per run that play episodes, with --gpu (default: {workers}).",
    )
    parser.add_argument(
        "--mps",
        action="store_true",
        help="With --gpu, start NVIDIA's Multi-Process Service, so that runs compute at the same time instead of "
        "taking turns.",
    )
    parser.add_argument(
        "--gpu-share",
        type=fraction,
        default=1.0,
        help="Fraction of the GPU's memory for the runs of this command (default: 1).",
    )


def value(text: str) -> Any:
    """Return the value of a setting that was given as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings in `--set NAME=VALUE`."""
    return {name: value(text) for name, _, text in (item.partition("=") for item in args.set)}


def key_of(run: Run, args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields by which a run is found in the data file."""
    settings = {**run.settings, **given(args)}
    start = {} if run.start is None else {"start": key_of(run.start, args)["settings"]}
    text = json.dumps([digest({**settings, "store": False}), start, dict(run.evaluations)], sort_keys=True)
    return {
        "question": run.question,
        "task": run.task,
        "variant": run.variant,
        "seed": run.seed,
        "model": run.model,
        "settings": hashlib.sha256(text.encode()).hexdigest()[:12],
    }


def untrained_defaults(settings: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return `settings` for `model`, with the defaults for an untrained model.

    The model is the result of a run that started from an untrained model, but `palestra train` has other defaults for
    every model that it loads from a folder.
    """
    wanted = from_mapping({**settings, "model": "default:0.1M"}).to_dict()
    loaded = from_mapping({**settings, "model": model}).to_dict()
    places = {name: place for name, place in FLAT.items() if place[0] in ("sampling", "optimizer")}
    places |= {name: ("algorithm", name) for name in options_of(wanted["algorithm"]["name"])}
    changed = {
        name: wanted[section][option]
        for name, (section, option) in places.items()
        if wanted[section].get(option) not in (None, loaded[section].get(option))
    }
    return {**changed, **settings, "model": model, "warm_start": 0}


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the flags of `palestra train` for settings."""
    flags: list[str] = []
    for name, setting in settings.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(setting, bool):
            flags.append(flag if setting else flag.replace("--", "--no-", 1))
        elif isinstance(setting, list | tuple):
            items = [str(item) for item in setting]
            flags += [part for item in items for part in (flag, item)] if name in REPEATABLE else [flag, *items]
        else:
            flags += [flag, json.dumps(setting) if isinstance(setting, dict) else str(setting)]
    return flags

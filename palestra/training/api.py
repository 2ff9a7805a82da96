"""`palestra.train`: train an agent from Python. torch is imported when training starts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from palestra.algorithms.base import Algorithm, AlgorithmConfig
from palestra.concurrency import run_sync
from palestra.core import Env
from palestra.errors import BadValue
from palestra.optional import require
from palestra.registry import EnvFactory, list_envs, register, unregister
from palestra.training.config import TrainConfig
from palestra.training.config_values import qualified_name
from palestra.training.recipe import from_mapping
from palestra.training.run import TrainingRun
from palestra.training.trainer_selection import run_trainer

if TYPE_CHECKING:
    from palestra.training.trainer import Log, OnMetrics

logger = logging.getLogger(__name__)

EnvSource = str | EnvFactory | Callable[..., Env]


def train(
    config: TrainConfig | None = None,
    *,
    env: EnvSource | Sequence[EnvSource] | Mapping[str, float] | None = None,
    algorithm: str | AlgorithmConfig | Algorithm[Any] | type[Algorithm[Any]] | None = None,
    overwrite: bool = False,
    log: Log | None = None,
    on_metrics: OnMetrics | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> TrainingRun:
    """Train a model on environments and return the finished run.

    ```
    run = palestra.train(env="game:GuessTheNumber-v0-easy", algorithm="rebn", steps=20, out="runs/guess")
    ```

    Pass either a `config` or individual settings. `env` is an id, module:Class, URL, Env class, function or EnvFactory,
    a sequence of these, or a mapping from these to sampling weights. `algorithm` is a name, an Algorithm class or an
    algorithm config. All other settings are the flags of `palestra train` with underscores (`lr`, `episodes`, `model`,
    ...); `wrappers` may contain callables, for example a custom reward.

    If the output folder contains a checkpoint with the same config, training continues from it; `overwrite=True`
    deletes the run and starts over. `log` is called with one line per step and with other messages, and `on_metrics`
    with all metrics rows after each step. A progress bar is displayed if neither is passed or if `progress=True`. The
    function can also be called inside a running event loop, for example in a notebook.
    """
    if config is not None:
        if env is not None or algorithm is not None or settings:
            raise BadValue("pass either a config or individual settings to train(), not both")
    else:
        if env is not None:
            settings |= _env_settings(env, settings)
        if algorithm is not None:
            settings["algorithm"] = algorithm
        config = from_mapping(settings)
    for module in ("torch", "transformers"):
        require(module, extra="train")
    if progress is None:
        progress = log is None and on_metrics is None
    with _progress_bar(config.run.steps, enabled=progress) as show:

        def report(rows: Sequence[Mapping[str, Any]]) -> None:
            show(rows)
            if on_metrics is not None:
                on_metrics(rows)

        watch = report if progress or on_metrics is not None else None
        options: dict[str, Any] = {"resume": not overwrite, "log": log or _log_warnings, "on_metrics": watch}
        if config.ray.enabled:
            from palestra.training.ray_launcher import train_on_ray

            return train_on_ray(config, **options)
        return run_sync(run_trainer(config, **options))


def _log_warnings(line: str) -> None:
    """Pass only warnings to Python's logging, for callers that do not read the log."""
    if line.startswith("warning: "):
        logger.warning("%s", line.removeprefix("warning: "))


def _env_settings(env: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config settings for environments that are passed as names, classes, functions or factories."""
    if isinstance(env, Mapping):
        return {"env": env}
    sources = list(env) if isinstance(env, (list, tuple)) else [env]
    options: dict[str, Any] = {}
    names = []
    for source in sources:
        if isinstance(source, EnvFactory):
            if len(sources) > 1 and (source.kwargs or source.tools or source.wrappers):
                raise BadValue("an EnvFactory with kwargs, tools or wrappers cannot be mixed with other environments")
            if source.builder is not None:
                names.append(_env_name(source.builder))
            else:
                names.append(source.name)
            given = {
                "env_kwargs": dict(source.kwargs),
                "tools": tuple(source.tools),
                "max_tool_calls": source.max_tool_calls,
                "wrappers": tuple(source.wrappers),
            }
            options |= {key: value for key, value in given.items() if value and key not in settings}
        else:
            names.append(source if isinstance(source, str) else _env_name(source))
    return {**options, "env": tuple(names)}


def _env_name(source: Callable[..., Env]) -> str:
    """Return module:name for an Env class or function that can be imported; otherwise register it and return its id."""
    if not callable(source):
        raise BadValue(
            f"env must be a name, an Env class, a function that returns an Env or an EnvFactory; got {source!r}"
        )
    name = qualified_name(source)
    if re.fullmatch(r"[\w.]+:\w+", name) and not name.startswith("__main__:"):
        return name
    label = re.sub(r"\W", "", getattr(source, "__name__", type(source).__name__)) or "Env"
    env_id = f"custom:{label}-v0"
    if env_id in list_envs():
        unregister(env_id)  # the class was redefined, for example in a notebook
    register(env_id, source)
    return env_id


@contextmanager
def _progress_bar(steps: int, *, enabled: bool) -> Iterator[Callable[[Sequence[Mapping[str, Any]]], None]]:
    """Display a progress bar for the training steps in the terminal or notebook."""
    if not enabled:
        yield lambda _: None
        return
    tqdm = require("tqdm.auto", extra="train").tqdm
    with tqdm(total=steps or None, unit="step", desc="training") as bar:

        def update(rows: Sequence[Mapping[str, Any]]) -> None:
            row = rows[-1]
            bar.update(row["step"] + 1 - bar.n)
            shown = {name: f"{row[name]:.3f}" for name in ("success", "eval_success", "loss") if name in row}
            bar.set_postfix(shown)

        yield update

"""Evaluate agents from Python with `palestra.evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.agents import Agent
from palestra.concurrency import run_sync
from palestra.evals.agents import EvaluatedAgent, ModelSettings
from palestra.evals.folder import default_folder
from palestra.evals.run import EvalSettings, Evaluation, run_evaluation
from palestra.evals.suite import Suite, TaskCount, load_suite, suite_entry, with_overrides


def evaluate(
    envs: str | Suite | Sequence[str],
    agent: str | Agent | Callable[..., Any],
    *,
    n: TaskCount | None = None,
    k: int | None = None,
    seed: int | None = None,
    turns: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    model: ModelSettings | None = None,
    settings: EvalSettings | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Evaluation:
    """Evaluate `agent` on `envs` and return the results. Repeat the same call to resume an interrupted evaluation.

    `envs` is an environment name (id, `module:Class` or URL), `suite:NAME`, the path to a suite file, a `Suite`, or a
    list of those names. `agent` is "expert", "random", a model folder, the folder of a training run, a Hugging Face id,
    the URL of an OpenAI-compatible server, `module:name`, an `Agent`, or a function that maps observations to actions.

    Each environment is evaluated on `n` tasks with consecutive seeds starting at `seed`, with `k` attempts per task and
    at most `turns` turns per attempt. Defaults come from the suite; otherwise they are every row of a dataset
    (`n="all"`) or 100 tasks of any other environment, one attempt and seed 0. `env_kwargs` are passed to every
    environment. `model` contains sampling settings; `settings` contains concurrency, retries and timeouts. Episodes and
    the report are stored in `out` (default: `runs/eval-SUITE-AGENT`); `overwrite=True` deletes an existing evaluation
    in that folder.

    The function can be called in scripts and in notebooks with a running event loop.
    """
    suite = with_overrides(_suite(envs), kwargs=env_kwargs or {}, n=n, k=k, seed=seed, turns=turns)
    evaluated = EvaluatedAgent(agent, model)
    folder = Path(out) if out is not None else default_folder(suite.name, evaluated.name)
    return run_sync(run_evaluation(suite, evaluated, folder, settings=settings, overwrite=overwrite))


def _suite(envs: str | Suite | Sequence[str]) -> Suite:
    if isinstance(envs, Suite):
        return envs
    names = [envs] if isinstance(envs, str) else list(envs)
    suites = [
        load_suite(name)
        if name.startswith("suite:") or name.endswith(".toml")
        else Suite(name=name, entries=(suite_entry(name, where="evaluate"),))
        for name in names
    ]
    name = " + ".join(dict.fromkeys(suite.name for suite in suites)) if len(suites) <= 3 else f"{len(suites)} suites"
    if len(suites) == 1:
        return suites[0]
    return Suite(name=name, entries=tuple(entry for suite in suites for entry in suite.entries))

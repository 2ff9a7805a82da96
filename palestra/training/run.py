"""Result of a training run: its metrics and its model. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.rollout import RolloutResult
    from palestra.training.config import TrainConfig


@dataclass(slots=True, kw_only=True)
class TrainingRun:
    """A finished training run; notebooks display it as a table with its learning curve."""

    folder: Path
    rows: list[dict[str, Any]] = field(
        repr=False
    )  # metrics, one row per step; step -1 is the evaluation before training
    config: TrainConfig = field(repr=False)
    max_tokens: int = 0  # maximum length of replies in the run; 0: as in the config

    @property
    def evaluations(self) -> list[float]:
        """Success rates on held-out tasks, in order."""
        return [row["eval_success"] for row in self.rows if "eval_success" in row]

    @property
    def first_success(self) -> float | None:
        """Success rate on held-out tasks before training; None without an evaluation."""
        return next(iter(self.evaluations), None)

    @property
    def last_success(self) -> float | None:
        """Success rate on held-out tasks after training; None without an evaluation."""
        return next(reversed(self.evaluations), None)

    @property
    def final_success(self) -> float | None:
        """Success rate of the last model on tasks that no other evaluation has used; None without an evaluation."""
        return next((row["final_success"] for row in reversed(self.rows) if "final_success" in row), None)

    @property
    def model_dir(self) -> Path:
        """Folder with the model that has the best held-out success, or else the last model, in Hugging Face format."""
        best = self.folder / "best"
        return best if best.exists() else self.folder / "last"

    def evaluate(self, *, env: str | None = None, episodes: int = 256, seed: int = 800_000) -> RolloutResult:
        """Play episodes with the best model and the run's sampling settings, and return the result.

        `env` is the environment to play (default: the first environment of the run); `seed` determines its tasks.
        """
        from palestra.concurrency import run_sync
        from palestra.engines import LocalEngine
        from palestra.registry import with_split
        from palestra.rollout import collect

        config = self.config
        sampling = config.sampling
        name = env or config.eval_envs[0]

        async def play() -> RolloutResult:
            dtype: str | None = config.model.dtype
            if dtype == "auto":
                dtype = None if config.model.trained else "float32"
            async with LocalEngine(str(self.model_dir), device=config.run.device, dtype=dtype) as engine:
                agent = config.agent.chat_agent(
                    engine,
                    max_tokens=self.max_tokens or sampling.max_tokens,
                    temperature=config.eval_temperature,
                    stop=sampling.stop,
                )
                return await collect(
                    agent,
                    name,
                    episodes=episodes,
                    seed=seed,
                    concurrency=sampling.concurrency,
                    kwargs=with_split(name, config.eval_kwargs, "test"),
                    wrappers=config.env.all_wrappers,
                )

        return run_sync(play())

    def _repr_html_(self) -> str:
        config = self.config
        steps = sum(row["step"] >= 0 for row in self.rows)
        facts = {
            "environments": ", ".join(config.env.weights) or "none",
            "algorithm": config.algorithm.name,
            "model": config.model.name,
            "steps": str(steps),
            "success before": _percent(self.first_success),
            "success after": _percent(self.last_success),
            "success on fresh tasks": _percent(self.final_success),
            "folder": str(self.folder),
        }
        table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table>{table}</table>{_curve(self.evaluations)}"


def _percent(rate: float | None) -> str:
    return "not evaluated" if rate is None else f"{rate:.1%}"


def _curve(rates: list[float], width: int = 320, height: int = 80) -> str:
    """Return an SVG line chart of success rates, or an empty string if there are fewer than two."""
    if len(rates) < 2:
        return ""
    points = " ".join(f"{i * width / (len(rates) - 1):.1f},{height * (1 - rate):.1f}" for i, rate in enumerate(rates))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="success on held-out tasks">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
    )

"""Answer AgentGym-RL's questions (arXiv 2509.08755) with small models and several seeds.

    python recipes/papers/agentgym.py horizons --gpu --jobs 8     # one question, on a GPU
    python recipes/papers/agentgym.py tasks --tasks TextCraft BabyAI
    python recipes/papers/agentgym.py --table                     # write the tables and figures in docs/papers.md

Every run is appended to `results/agentgym.jsonl`. The same command continues an interrupted experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plan import Question, Row, Run, from_warm_start, with_model
from report import (
    before,
    by_task_and_variant,
    by_variant,
    collapsed,
    current,
    draw,
    evaluated,
    final,
    gain,
    last_of,
    listing,
    section,
)
from runner import main

COMMON: dict[str, Any] = {"model": "default:0.1M", "steps": 30, "eval_every": 5, "eval_episodes": 256}
LONG: dict[str, Any] = {**COMMON, "episodes": 128, "eval_every": 10}  # for tasks with long episodes


def command(question: str) -> str:
    return f"python recipes/papers/agentgym.py {question}"


# Success before and after RL by task, and gain by kind of feedback


EXPERT: dict[str, Any] = {"warm_player": "expert", "warm_start": 2000}  # a random player hardly ever solves these tasks
EPISODES = 32  # per task and evaluation
SCENARIOS: dict[str, tuple[list[str], str, dict[str, Any]]] = {  # the paper's tasks, kind of feedback and settings
    "BabyAI": (
        [f"babyai:{task}-v0" for task in ("GoTo", "AOD", "FindObj", "OpenRoom", "SLoc", "All")],
        "world with rules",
        {"env_kwargs": {"max_turns": 10}},
    ),
    "TextCraft": (
        [f"textcraft:Depth{depth}-v0" for depth in range(1, 5)],
        "world with rules",
        {"env_kwargs": {"max_turns": 12}, **EXPERT},
    ),
    "ScienceWorld": (
        [f"sciworld:{task}-v0" for task in ("Measure", "TestConductivity", "Find", "ChemistryMix", "Lifespan", "All")],
        "world with rules",
        {"env_kwargs": {"max_turns": 20}, **EXPERT, "warm_start": 1000, "episodes": 64, "steps": 20},  # slow expert
    ),
    "search": (
        [f"search:World-v0-{kind}" for kind in ("1hop", "2hop", "3hop", "4hop", "compare", "count", "unanswerable")],
        "open search",
        EXPERT,
    ),
    "web": (
        [f"web:{site}-v0" for site in ("Encyclopedia", "Map", "Shop")],
        "web pages",
        {**EXPERT, "warm_start": 1000, "episodes": 64, "steps": 20},  # slow browser
    ),
}


def tasks(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Train one model per scenario on all of its tasks; every evaluation has `EPISODES` episodes of each task."""
    return [
        Run(
            question="tasks",
            task=scenario,
            variant="rebn",
            seed=seed,
            settings={
                **with_model({**LONG, **settings}, model),
                "env": envs,
                "eval_every": settings.get("steps", LONG["steps"]),
                "eval_episodes": EPISODES * len(envs),
            },
        )
        for seed in seeds
        for scenario, (envs, _, settings) in SCENARIOS.items()
    ]


def tasks_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        groups = {
            f"{scenario}: {env}": [{**row, "curve": of_env(row, env)} for row in mine if row["task"] == scenario]
            for scenario, (envs, _, _) in SCENARIOS.items()
            for env in envs
        }
        return listing(groups, GAINS)

    return section(rows, "tasks", command("tasks"), text)


def of_env(row: Row, env: str) -> dict[str, list[float]]:
    """Return a run's steps and its success rates in one environment."""
    curve = row["curve"]
    return {"step": curve["step"], "success": curve[f"success/{env}"]} if curve else {}


def feedback_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        kinds = dict.fromkeys(kind for _, kind, _ in SCENARIOS.values())
        groups = {kind: [row for row in mine if SCENARIOS[row["task"]][1] == kind] for kind in kinds}
        return listing(groups, GAINS)

    return section(rows, "tasks", command("feedback"), text)


GAINS = {"before": (before, ".1%"), "after": (last_of("success"), ".1%"), "gain": (gain, "+.1%")}


# Mixture of tasks against single tasks

MIXED = ("babyai:GoToObjS6-v0", "game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy")  # small models learn them
MIXTURE: dict[str, Any] = {**COMMON, "episodes": 256, "eval_every": 10, "max_tokens": 16}  # the same limit on all tasks
MIXTURES: dict[str, dict[str, Any]] = {
    **{env: {"env": env} for env in MIXED},
    "mixture": {"env": list(MIXED)},
    "mixture, 3 times the steps": {"env": list(MIXED), "steps": 3 * MIXTURE["steps"]},
}


def mixture(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Train on single tasks and on all of them, and evaluate every model on every task."""
    return [
        Run(
            question="mixture",
            task="all",
            variant=name,
            seed=seed,
            settings={**MIXTURE, **settings, **model},
            evaluations={env: {"env": env, "n": 256} for env in MIXED},
        )
        for seed in seeds
        for name, settings in MIXTURES.items()
    ]


def mixture_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        groups = {f"trained on {name}": group for name, group in by_variant(mine, list(MIXTURES)).items()}
        return listing(groups, {env: (evaluated(env), ".1%") for env in MIXED})

    return section(rows, "mixture", command("mixture"), text)


# Growing horizon (ScalingInter) against fixed horizons

HORIZON_TASKS: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {  # settings; short, middle and long horizon
    "BabyAI, several rooms": ({"env": "babyai:GoToObjMazeS7-v0"}, (5, 10, 20)),
    "TextCraft, depth 3": ({"env": "textcraft:Depth3-v0", **EXPERT}, (5, 10, 20)),
    "search, 3 hops": ({"env": "search:World-v0-3hop", **EXPERT}, (5, 10, 15)),
}
HORIZONS = ("short", "long", "growing")


def horizons(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Train with fixed and growing horizons; evaluations have the long one, and no run is rolled back."""
    runs = []
    for seed in seeds:
        for task, (given, (short, middle, long)) in HORIZON_TASKS.items():
            stage = LONG["steps"] // 3
            values = {"short": f"{short}", "long": f"{long}", "growing": f"{short},{middle},{long}@{stage}"}
            base = {**with_model({**LONG, **given}, model), "env_kwargs": {"max_turns": long}, "rollback": 0.0}
            runs += [
                from_warm_start("horizons", task, name, seed, base, {"horizon": values[name]}) for name in HORIZONS
            ]
    return runs


def horizons_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        columns = {
            "success": (final, ".1%"),
            "sampled tokens": (last_of("tokens"), ",.0f"),
            "hours": (lambda row: row["curve"]["seconds"][-1] / 3600 if row["curve"] else None, ".3f"),
            "entropy": (last_of("entropy"), ".2f"),
        }
        groups = by_task_and_variant(mine, list(HORIZON_TASKS), list(HORIZONS))
        shares = [f"{name}: {_share(group)}" for name, group in groups.items() if group]
        panels = {task: by_variant([r for r in mine if r["task"] == task], list(HORIZONS)) for task in HORIZON_TASKS}
        figures = [draw(f"horizons-{x}", panels, "success", "success", x=x) for x in ("step", "tokens", "seconds")]
        lost = f"Runs whose last success rate was below half of their best one: {'; '.join(shares)}."
        return "\n\n".join([listing(groups, columns), lost, *figures])

    return section(rows, "horizons", command("horizons"), text)


def _share(rows: Sequence[Row]) -> str:
    return f"{sum(bool(collapsed(row)) for row in rows)} of {len(rows)}"


# Parameters, post-training and test-time compute

SIZES = ("default:0.3M", "default:1M", "default:3M", "default:10M")
BUDGETS = (3, 5, 8)  # turns
ATTEMPTS = 8
SCALE: dict[str, Any] = {"env": "game:GuessTheNumber-v0-easy", "env_kwargs": {"max_number": 20, "max_turns": 5}}


def scale(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Train models of several sizes and evaluate them with several turn budgets and attempts."""
    kwargs = SCALE["env_kwargs"]
    evaluations = {
        f"{turns} turns": {"env": SCALE["env"], "env_kwargs": {**kwargs, "max_turns": turns}, "n": 256, "k": ATTEMPTS}
        for turns in BUDGETS
    }
    settings = {**COMMON, **SCALE, "steps": 60, "max_tokens": 16}
    return [
        Run(
            question="scale",
            task="GuessTheNumber, 1 to 20",
            variant=size,
            seed=seed,
            settings={**settings, "model": size, **model},
            evaluations=evaluations,
        )
        for seed in seeds
        for size in ([model["model"]] if model else SIZES)
    ]


def scale_report(rows: Sequence[Row]) -> str:
    mine = [row for model in current(rows, "scale").values() for row in model]
    if not mine:
        return section(rows, "scale", command("scale"), lambda _: "")
    sizes = [*SIZES, *sorted({row["variant"] for row in mine} - set(SIZES))]
    columns: dict[str, Any] = {f"after {step} steps": (_success_at(step), ".1%") for step in (0, 20, 40, 60)}
    columns |= {f"{turns} turns": (evaluated(f"{turns} turns"), ".1%") for turns in BUDGETS}
    columns |= {f"pass@{k}, 5 turns": (evaluated("5 turns", f"pass@{k}"), ".1%") for k in (2, 4, 8)}
    return listing(by_variant(mine, sizes), columns)


def _success_at(step: int) -> Any:
    def metric(row: Row) -> float | None:
        values: dict[int, float] = dict(zip(row["curve"]["step"], row["curve"]["success"], strict=True))
        return values.get(step)

    return metric


# Starting points

STARTS_TASKS: dict[str, dict[str, Any]] = {
    "TextCraft, depth 1": {"env": "textcraft:Depth1-v0", "max_tokens": 64},
    "GuessTheNumber": {"env": "game:GuessTheNumber-v0-easy", "max_tokens": 16},
}
STARTS = ("random player", "SFT", "AgentEvol")


def starts(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Start RL from a random player's games, from an expert's games (SFT), or from a model trained by AgentEvol."""
    runs = []
    for seed in seeds:
        for task, given in STARTS_TASKS.items():
            settings = {**COMMON, **given, **model}
            evolved = Run(
                question="evolved",
                task=task,
                variant="agentevol",
                seed=seed,
                settings={**settings, "algorithm": "agentevol", "steps": 5, "eval_every": 1},
            )
            clones = {"random player": {}, "SFT": {"warm_player": "expert", "warm_start": 200}, "AgentEvol": {}}
            runs += [
                Run(
                    question="starts",
                    task=task,
                    variant=name,
                    seed=seed,
                    settings={**settings, **clones[name]},
                    start=evolved if name == "AgentEvol" else None,
                )
                for name in STARTS
            ]
    return runs


def starts_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        groups = by_task_and_variant(mine, list(STARTS_TASKS), list(STARTS))
        return listing(groups, {"before RL": (before, ".1%"), "after RL": (final, ".1%")})

    return section(rows, "starts", command("starts"), text)


QUESTIONS = {
    "tasks": Question(plan=tasks, report=tasks_report),
    "mixture": Question(plan=mixture, report=mixture_report),
    "horizons": Question(plan=horizons, report=horizons_report),
    "feedback": Question(plan=tasks, report=feedback_report),
    "scale": Question(plan=scale, report=scale_report),
    "starts": Question(plan=starts, report=starts_report),
}

if __name__ == "__main__":
    main("Answer AgentGym-RL's questions with small models and several seeds.", "agentgym", QUESTIONS)

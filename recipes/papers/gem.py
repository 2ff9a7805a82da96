"""Answer GEM's questions (arXiv 2510.01051) with small models and several seeds.

    python recipes/papers/gem.py discount --jobs 2                # one question, on a CPU
    python recipes/papers/gem.py algorithms --gpu --jobs 12       # on a GPU
    palestra init-model smollm2 --out models/smollm2              # SmolLM2-135M
    python recipes/papers/gem.py tools --model models/smollm2 --gpu --seeds 11 12 13
    python recipes/papers/gem.py --table                          # write the tables and figures in docs/papers.md

Every run is appended to `results/gem.jsonl`. The same command continues an interrupted experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from plan import Question, Row, Run, from_warm_start
from report import by_task_and_variant, by_variant, draw, evaluated, final, last_of, listing, matrix, section
from runner import main

COMMON: dict[str, Any] = {"model": "default:0.1M", "steps": 30, "eval_every": 5, "eval_episodes": 256}
COMPARED: dict[str, Any] = {**COMMON, "episodes": 256, "eval_every": 10}  # for questions with many runs
GUESS: dict[str, Any] = {"env": "game:GuessTheNumber-v0-easy"}


def command(question: str) -> str:
    return f"python recipes/papers/gem.py {question}"


# Algorithms, each with its own learning rate

TASKS: dict[str, dict[str, Any]] = {  # `max_tokens` is the length of a move
    "Sudoku, one move": {
        "env": "game:Sudoku-v0-easy",
        "env_kwargs": {"clues": 15, "max_turns": 1},
        "max_tokens": 8,
    },
    "GuessTheNumber": {**GUESS, "max_tokens": 4},
    "Mastermind": {
        "env": "game:Mastermind-v0-easy",
        "env_kwargs": {"code_length": 2, "num_numbers": 4, "max_turns": 4},
        "max_tokens": 6,
    },
    "FifteenPuzzle": {"env": "game:FifteenPuzzle-v0-easy", "env_kwargs": {"max_turns": 6}, "max_tokens": 4},
    "TowerofHanoi": {
        "env": "game:TowerofHanoi-v0-easy",
        "env_kwargs": {"num_disks": 2, "max_turns": 4},
        "max_tokens": 5,
    },
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "reinforce": {"algorithm": "reinforce"},
    "reinforce, minus mean": {"algorithm": "reinforce", "baseline": True},
    "rebn": {"algorithm": "rebn"},  # normalizes per turn, the default
    "rebn, whole batch": {"algorithm": "rebn", "normalize_per_turn": False},
    "grpo": {"algorithm": "grpo", "group_size": 8},
    "ppo": {"algorithm": "ppo"},
    "rloo": {"algorithm": "rloo", "group_size": 8},
    "reinforce_pp": {"algorithm": "reinforce_pp", "kl": 0.01, "kl_in": "reward"},
}
NORMALIZATIONS = ("reinforce", "reinforce, minus mean", "rebn, whole batch", "rebn")
RATES = (3e-3, 1e-2, 3e-2)
TUNED_ON = ("Sudoku, one move", "GuessTheNumber")  # tasks on which the learning rates are compared
TUNING_SEED = 1  # not among the seeds in the tables


def tuning(model: Mapping[str, Any]) -> list[Run]:
    """Return the runs that compare learning rates."""
    return [
        from_warm_start(
            "rates",
            task,
            f"{name}, {rate:g}",
            TUNING_SEED,
            {**COMPARED, **TASKS[task], **model},
            {**ALGORITHMS[name], "lr": rate},
        )
        for name in ALGORITHMS
        for rate in RATES
        for task in TUNED_ON
    ]


def rate_of(algorithm: str, rows: Sequence[Row], model: str) -> float | None:
    """Return the learning rate with the highest mean success over the tuning tasks; None if a run is missing."""
    scores: dict[float, float] = {}
    for rate in RATES:
        mine = [r for r in rows if r["question"] == "rates" and r["model"] == model]
        mine = [r for r in mine if r["variant"] == f"{algorithm}, {rate:g}" and r["final"] is not None]
        by_task = {row["task"]: row["final"] for row in mine}
        if len(by_task) < len(TUNED_ON):
            return None
        scores[rate] = fmean(by_task.values())
    return max(scores, key=lambda rate: scores[rate])


def algorithms(seeds: Sequence[int], model: Mapping[str, Any], rows: Sequence[Row]) -> list[Run]:
    """Compare learning rates for each algorithm, then run every algorithm with its best rate.

    The models trained with ReBN are also evaluated on other environments, for the question about transfer.
    """
    runs = tuning(model)
    rates = {name: rate_of(name, rows, {**COMPARED, **model}["model"]) for name in ALGORITHMS}
    return runs + [
        from_warm_start(
            "algorithms",
            task,
            name,
            seed,
            {**COMPARED, **settings, **model},
            {**ALGORITHMS[name], "lr": rate},
            TRANSFER if name == "rebn" else {},
        )
        for seed in seeds
        for task, settings in TASKS.items()
        for name, rate in rates.items()
        if rate is not None
    ]


def algorithms_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        panels = {task: by_variant([r for r in mine if r["task"] == task], list(ALGORITHMS)) for task in TASKS}
        figure = draw("algorithms", panels, "success", "success")
        return f"{matrix(mine, list(TASKS), list(ALGORITHMS), final)}\n\n{figure}"

    def rates(mine: list[Row]) -> str:
        lines = [f"| | {' | '.join(f'{rate:g}' for rate in RATES)} |", "|---" * (len(RATES) + 1) + "|"]
        for name in ALGORITHMS:
            found = [[r["final"] for r in mine if r["variant"] == f"{name}, {rate:g}"] for rate in RATES]
            cells = [", ".join(f"{value:.1%}" for value in values if value is not None) for values in found]
            lines.append(f"| {' | '.join([name, *cells])} |")
        return "\n".join(lines)

    tuned = section(rows, "rates", command("algorithms"), rates)
    compared = section(rows, "algorithms", command("algorithms"), text)
    return f"{compared}\n\nSuccess by learning rate on {' and '.join(TUNED_ON)}, seed {TUNING_SEED}:\n\n{tuned}"


# Discount and normalization

GAMMAS = (1.0, 0.9, 0.7)
LONG_GUESS: dict[str, Any] = {**TASKS["GuessTheNumber"], "env_kwargs": {"max_turns": 8}, "warm_beta": 0.0}


def discount(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Train with several discount factors; in the warm start, all actions have the same weight (`warm_beta` 0)."""
    base = {**COMMON, **LONG_GUESS, **model}
    return [
        from_warm_start("discount", "GuessTheNumber, 8 turns", f"gamma {gamma:g}", seed, base, {"gamma": gamma})
        for seed in seeds
        for gamma in GAMMAS
    ]


def discount_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        groups = by_variant(mine, [f"gamma {gamma:g}" for gamma in GAMMAS])
        table = listing(groups, {"turns per episode": (last_of("turns"), ".2f"), "success": (final, ".1%")})
        return f"{table}\n\n{draw('discount', {'GuessTheNumber, 8 turns': groups}, 'turns', 'turns per episode')}"

    return section(rows, "discount", command("discount"), text)


def normalization(seeds: Sequence[int], model: Mapping[str, Any], rows: Sequence[Row]) -> list[Run]:
    """Return the runs of `algorithms` that differ only in the normalization of returns."""
    names = [*NORMALIZATIONS, *(f"{name}, {rate:g}" for name in NORMALIZATIONS for rate in RATES)]
    return [run for run in algorithms(seeds, model, rows) if run.variant in names]


def normalization_report(rows: Sequence[Row]) -> str:
    return section(
        rows,
        "algorithms",
        command("normalization"),
        lambda mine: matrix(mine, list(TASKS), NORMALIZATIONS, final),
    )


# Tools

TOOLS: dict[str, dict[str, dict[str, Any]]] = {
    "math": {
        "without tool": {"env": "math:Arithmetic-v0-easy"},
        "Python": {"env": "math:Arithmetic-v0-easy", "tools": ["python"], "max_tool_calls": 1, "horizon": 2},
    },
    "world questions": {
        "without tool": {"env": "qa:World-v0-1hop"},
        "search": {"env": "search:World-v0-1hop"},  # the same questions, with actions that search and open pages
    },
}


def tools(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    """Train with and without a tool; the model first imitates the expert, which knows how to use the tool."""
    settings = {**COMPARED, "warm_player": "expert", **model}
    return [
        Run(question="tools", task=task, variant=name, seed=seed, settings={**settings, **variant})
        for seed in seeds
        for task, variants in TOOLS.items()
        for name, variant in variants.items()
    ]


def tools_report(rows: Sequence[Row]) -> str:
    return section(
        rows,
        "tools",
        command("tools"),
        lambda mine: matrix(mine, list(TOOLS), ["without tool", "Python", "search"], final),
    )


# Transfer

TRANSFER: dict[str, dict[str, Any]] = {  # evaluations of the models trained on `TASKS`
    name: {**settings, "n": 256, "max_tokens": 16}  # the same limit in all environments
    for name, settings in {
        **TASKS,
        "GuessTheNumber, 1 to 20": {**GUESS, "env_kwargs": {"max_number": 20, "max_turns": 5}},
    }.items()
}


def transfer(seeds: Sequence[int], model: Mapping[str, Any], rows: Sequence[Row]) -> list[Run]:
    """Return the runs of `algorithms` whose models are evaluated on all environments."""
    rates = [f"rebn, {rate:g}" for rate in RATES]
    return [run for run in algorithms(seeds, model, rows) if run.evaluations or run.variant in rates]


def transfer_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        trained = [row for row in mine if row["evaluations"]]
        groups = {f"trained on {task}": [r for r in trained if r["task"] == task] for task in TASKS}
        return listing(groups, {name: (evaluated(name), ".1%") for name in TRANSFER})

    return section(rows, "algorithms", command("transfer"), text)


# Learning curves in 24 environments with default settings

# Games with long texts have fewer turns or smaller boards than the default, so that an episode has at most about 2,000
# tokens.
CURVES: dict[str, dict[str, Any]] = {
    "game:GuessTheNumber-v0-easy": {},
    "game:Mastermind-v0-easy": {"max_turns": 6},
    "game:Minesweeper-v0-easy": {},
    "game:Wordle-v0-easy": {"max_turns": 8},
    "game:FifteenPuzzle-v0-easy": {},
    "game:Hangman-v0-easy": {},
    "game:Sudoku-v0-easy": {"clues": 13, "max_turns": 5},
    "game:TowerofHanoi-v0-easy": {},
    "game:Game2048-v0-easy": {"target_tile": 16, "max_turns": 15},
    "game:Sokoban-v0-easy": {"num_boxes": 1, "dim_room": [5, 5], "max_turns": 12},
    "game:Crosswords-v0-easy": {"num_words": 1, "max_turns": 4},
    "game:WordSearch-v0-easy": {"num_words": 1, "max_turns": 3},
    "game:WikiGame-v0-easy": {"max_turns": 5, "max_distance": 2},
    "math:Arithmetic-v0-easy": {"digits": 1, "terms": 2},
    "math:Algebra-v0-easy": {},
    "math:NumberTheory-v0-easy": {},
    "math:WordProblems-v0-easy": {},
    "logic:Rules-v0-d0": {},
    "logic:Rules-v0-d1": {},
    "logic:Rules-v0-d0-open": {},
    "qa:World-v0-compare": {},
    "qa:World-v0-count": {},
    "babyai:GoToObjS6-v0": {},
    "textcraft:Depth1-v0": {},
}


def curves(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    return [
        Run(
            question="curves",
            task=env,
            variant="rebn",
            seed=seed,
            settings={**COMPARED, "env": env, "env_kwargs": kwargs, **model},
        )
        for seed in seeds
        for env, kwargs in CURVES.items()
    ]


def curves_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        groups = {env: [r for r in mine if r["task"] == env] for env in CURVES}
        table = listing(groups, {"before": (_first, ".1%"), "after": (final, ".1%")})
        panels = {env: {"rebn": group} for env, group in groups.items()}
        return f"{draw('curves', panels, 'success', 'success', columns=4)}\n\n{table}"

    return section(rows, "curves", command("curves"), text)


def _first(row: Row) -> float | None:
    return float(row["curve"]["success"][0]) if row["curve"] else None


# Asynchronous training

ASYNC_TASKS: dict[str, dict[str, Any]] = {
    "Sudoku": {"env": "game:Sudoku-v0-easy", "env_kwargs": {"clues": 13, "max_turns": 5}},
    "Sudoku, partial credit": {
        "env": "game:Sudoku-v0-easy",
        "env_kwargs": {"clues": 13, "max_turns": 5, "partial_credit": True},
    },
    "slow GuessTheNumber": {**GUESS, "wrappers": ["slow:Slow"]},
}
ASYNC_VARIANTS: dict[str, dict[str, Any]] = {"synchronous": {}, "asynchronous": {"asynchronous": True}}
EARLIER = "asynchronous, earlier version"  # started two steps' episodes in advance, so samples were two steps old


def asynchronous(seeds: Sequence[int], model: Mapping[str, Any], _: Sequence[Row]) -> list[Run]:
    return [
        from_warm_start("async", task, name, seed, {**COMPARED, **settings, **model}, variant)
        for seed in seeds
        for task, settings in ASYNC_TASKS.items()
        for name, variant in ASYNC_VARIANTS.items()
    ]


def asynchronous_report(rows: Sequence[Row]) -> str:
    def text(mine: list[Row]) -> str:
        groups = by_task_and_variant(mine, list(ASYNC_TASKS), [*ASYNC_VARIANTS, EARLIER])
        columns = {"seconds": (last_of("seconds"), ".0f"), "success": (final, ".1%")}
        return listing(groups, columns)

    # Times are comparable only on the same machine.
    machines = dict.fromkeys(row["hardware"] for row in rows if row["question"] == "async")
    parts = {m: section([r for r in rows if r["hardware"] == m], "async", command("async"), text) for m in machines}
    if len(parts) < 2:
        return section(rows, "async", command("async"), text)
    return "\n\n".join(f"On {machine}:\n\n{part}" for machine, part in parts.items())


QUESTIONS = {
    "algorithms": Question(plan=algorithms, report=algorithms_report),
    "discount": Question(plan=discount, report=discount_report),
    "normalization": Question(plan=normalization, report=normalization_report),
    "tools": Question(plan=tools, report=tools_report),
    "transfer": Question(plan=transfer, report=transfer_report),
    "curves": Question(plan=curves, report=curves_report),
    "async": Question(plan=asynchronous, report=asynchronous_report),
}

if __name__ == "__main__":
    main("Answer GEM's questions with small models and several seeds.", "gem", QUESTIONS)

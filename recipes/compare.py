"""Compare REINFORCE, ReBN, GRPO, RLOO, REINFORCE++ and PPO with the same initial model, seeds and budget.

    python recipes/compare.py --jobs 2

The single-turn task is a Sudoku with one empty cell and one attempt; the multi-turn task is GuessTheNumber-easy. The
single-turn task's gradient is noisier, so it uses fewer and smaller updates.
"""

from __future__ import annotations

from experiment import Variant, arguments, plot, run, table

TASKS = {
    "one turn: Sudoku, one empty cell": {
        "env": "game:Sudoku-v0-easy",
        "env_kwargs": '{"clues": 15, "max_turns": 1}',
        "max_tokens": 8,  # just long enough for a move
        "lr": 3e-3,
        "minibatches": 4,
        "entropy": 0.01,
    },
    "several turns: GuessTheNumber-easy": {"env": "game:GuessTheNumber-v0-easy"},
}
VARIANTS = [
    Variant(name="reinforce", settings={"algorithm": "reinforce", "group_size": 1}),
    Variant(name="rebn", settings={"algorithm": "rebn", "group_size": 1}),
    Variant(name="grpo", settings={"algorithm": "grpo", "group_size": 8}),
    Variant(name="rloo", settings={"algorithm": "rloo", "group_size": 8}),
    Variant(
        name="reinforce_pp",
        settings={"algorithm": "reinforce_pp", "group_size": 1, "kl": 0.01, "kl_in": "reward"},
    ),
    Variant(name="ppo", settings={"algorithm": "ppo", "group_size": 1}),
]
COLUMNS = {"success": "eval_success", "turns": "eval_turns_per_episode", "return": "eval_return"}


def main() -> None:
    args = arguments("Compare algorithms.", "compare")
    panels = {}
    tables = []
    for title, base in TASKS.items():
        folder = args.out / title.partition(":")[0].replace(" ", "-")
        panels[title] = run(args, folder, base, VARIANTS)
        tables.append(f"{title}\n\n{table(panels[title], COLUMNS)}\n")
    text = "\n".join(tables)
    (args.out / "table.md").write_text(text)
    plot(args.out / "curves.png", panels, "eval_success", "success on held-out seeds")
    print(text)
    print(f"curves: {args.out / 'curves.png'}")


if __name__ == "__main__":
    main()

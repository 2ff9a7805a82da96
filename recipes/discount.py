"""Compare the turns per episode after training with gamma 1, 0.9 and 0.7, from the same initial model and seeds.

    python recipes/discount.py --jobs 2

GuessTheNumber with 10 numbers can be won in fewer than the allowed 8 turns, but only a discount gives early wins a
higher return.
"""

from __future__ import annotations

from experiment import Variant, arguments, plot, run, table

BASE = {"env": "game:GuessTheNumber-v0-easy", "env_kwargs": '{"max_turns": 8}', "group_size": 1, "algorithm": "rebn"}
VARIANTS = [Variant(name=f"gamma {gamma}", settings={"gamma": gamma}) for gamma in (1.0, 0.9, 0.7)]
COLUMNS = {"turns": "eval_turns_per_episode", "success": "eval_success"}


def main() -> None:
    args = arguments("Discount below 1.", "discount")
    results = run(args, args.out, BASE, VARIANTS)
    text = table(results, COLUMNS)
    (args.out / "table.md").write_text(text + "\n")
    plot(args.out / "turns.png", {"GuessTheNumber, 8 turns": results}, "eval_turns_per_episode", "turns per episode")
    print(text)


if __name__ == "__main__":
    main()

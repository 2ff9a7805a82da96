"""Compare a horizon that grows in stages (ScalingInter) with short and long fixed horizons over equal numbers of steps.

    python recipes/scaling_inter.py --jobs 2

The game has 20 numbers and 6 turns. Evaluation has no horizon. A variant's cost is its number of sampled tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiment import Variant, arguments, interval, plot, run, table

BASE = {"env": "game:GuessTheNumber-v0-easy", "env_kwargs": '{"max_number": 20, "max_turns": 6}', "group_size": 1}
COLUMNS = {"success": "eval_success", "turns": "eval_turns_per_episode"}


def main() -> None:
    args = arguments("ScalingInter against fixed horizons.", "scaling_inter")
    stage = max(1, args.steps // 3)
    variants = [
        Variant(name="short (2)", settings={"horizon": "2"}),
        Variant(name="long (6)", settings={"horizon": "6"}),
        Variant(name=f"staged (2,4,6@{stage})", settings={"horizon": f"2,4,6@{stage}"}),
    ]
    results = run(args, args.out, BASE, variants)
    lines = [table(results, COLUMNS), ""]
    for name, runs in results.items():
        mean, half = interval([args.episodes * _tokens_per_episode(rows) for rows in runs])
        lines.append(f"{name}: {mean:,.0f} ± {half:,.0f} sampled tokens")
    text = "\n".join(lines)
    (args.out / "table.md").write_text(text + "\n")
    plot(args.out / "curves.png", {"GuessTheNumber, 20 numbers": results}, "eval_success", "success on held-out seeds")
    print(text)


def _tokens_per_episode(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the sampled tokens per episode, summed over all training steps."""
    return sum(row["tokens_per_episode"] for row in rows if row["step"] >= 0)


if __name__ == "__main__":
    main()

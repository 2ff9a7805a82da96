"""Evaluate two agents on the same tasks and print whether one of them is better.

    python examples/evaluate_and_compare.py [TASKS]

The agents are Python functions. A model's folder, a Hugging Face id or the URL of a server can replace them.
"""

import re
import sys

import palestra
from palestra.evals import compare

GAME = "game:GuessTheNumber-v0-easy"


def constant(observation: str) -> str:  # noqa: ARG001  # agents get the observation
    return r"\boxed{5}"


def bisect(messages: list) -> str:
    """Guess the middle of the numbers that are still possible."""
    low, high = 1, 10
    for message in messages:
        for hint, number in re.findall(r"number is (higher|lower) than (\d+)", str(message["content"])):
            low, high = (max(low, int(number) + 1), high) if hint == "higher" else (low, min(high, int(number) - 1))
    return rf"\boxed{{{(low + high) // 2}}}"


if __name__ == "__main__":
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for agent in (constant, bisect):
        result = palestra.evaluate(GAME, agent, n=tasks, out=f"runs/{agent.__name__}", overwrite=True)
        print(f"{agent.__name__}: {result.success:.1%}")
    total = compare("runs/constant", "runs/bisect")["total"]
    low, high = (100 * total[f"difference_{end}"] for end in ("low", "high"))
    print(f"difference: {100 * total['difference']:+.1f} points [{low:.1f}, {high:.1f}], p = {total['p']:.2g}")

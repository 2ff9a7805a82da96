"""Train on your own questions, with a reward that prefers short replies, and evaluate on held-out questions.

python examples/own_data.py [STEPS]
"""

import json
import sys
from pathlib import Path

import palestra


class Brief(palestra.Wrapper):
    """Subtract a small cost per character, so that of two correct replies the shorter one is better."""

    def after_step(self, action, step):
        return step._replace(reward=step.reward - 0.002 * len(action))


def write_questions(path: Path) -> None:
    rows = [{"question": f"{a} + {b} = ?", "answer": str(a + b)} for a in range(10) for b in range(10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    questions = Path("sums.jsonl")
    write_questions(questions)
    run = palestra.train(
        env="math:File-v0",
        env_kwargs={"path": str(questions), "question": "question", "answer": "answer"},
        wrappers=[Brief],
        steps=steps,
        episodes=32,
        warm_start=64,
        eval_episodes=12,
        max_tokens=12,
        out="runs/sums",
    )
    print(f"success on held-out questions: {run.first_success:.1%} -> {run.last_success:.1%}")

"""Play a verifiers environment as a Palestra environment, in a process with verifiers 0.1."""

from __future__ import annotations

from typing import Any

import palestra


def main() -> None:
    env: Any = palestra.make("verifiers:tests.frameworks.legs", split="train")
    observation, info = env.reset(seed=3)
    assert "how many legs" in observation
    assert env.reset(seed=3) == (observation, info)
    row = env.env.get_dataset()[3]
    answer = env.env.rg_dataset[int(row["answer"])]["answer"]
    fork = env.fork()
    right, wrong = env.step(f"<answer>{answer}</answer>"), fork.step("<answer>none</answer>")
    assert (right.reward, right.terminated, right.info["success"]) == (1.0, True, True)
    assert (wrong.reward, wrong.terminated, wrong.info["success"]) == (0.0, True, False)
    print("passed")


if __name__ == "__main__":
    main()

"""One side of grading.py, in a process of its own: reads a JSON command a line, times its own work, answers a line.

Run by either interpreter, with Palestra (`grading_side.py ours`) or with GEM (`grading_side.py gem`) installed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import Any

from sides import answer_all


class Ours:
    """`grade_math` and `grade_code` as they come; programs run isolated."""

    def __init__(self) -> None:
        from palestra.grading import grade_code, grade_math

        self._grade_math, self._grade_code = grade_math, grade_code

    def math(self, answer: str, gold: str) -> bool:
        return self._grade_math(answer, gold).correct

    def code(self, program: str, tests: dict[str, Any]) -> Callable[[], bool]:
        return lambda: self._grade_code(program, tests).correct


class Gem:
    """Its math grader without its pool (which costs more) and its code environment, both as they come."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        from gem.envs.math_env import MathEnv

        self._check = MathEnv.check_correct

    def math(self, answer: str, gold: str) -> bool:
        return bool(self._check(f"\\boxed{{{answer}}}", gold))

    def code(self, program: str, tests: dict[str, Any]) -> Callable[[], bool]:
        from datasets import Dataset
        from gem.envs.code_env import CodeEnv

        os.chdir(tempfile.mkdtemp())  # it makes a folder a test in the current one
        rows = Dataset.from_list([{"problem": "?", "tests": json.dumps(tests)}])
        env = CodeEnv(dataset_name="taco", dataset=rows, max_tests=len(tests["inputs"]))
        action = f"```python\n{program}\n```"

        def judged() -> bool:
            env.reset()
            return bool(env.step(action)[1] == 1.0)

        return judged


class Side:
    def __init__(self, name: str) -> None:
        self._side: Any = Ours() if name == "ours" else Gem()

    def math(self, pairs: list[tuple[str, str, bool]]) -> dict[str, Any]:
        """Seconds for all of them, and how many were judged as they should be."""
        began = perf_counter()
        said = [self._side.math(answer, gold) for answer, gold, _ in pairs]
        took = perf_counter() - began
        return {"seconds": took, "right": sum(a == b[2] for a, b in zip(said, pairs, strict=True))}

    def code(self, program: str, tests: dict[str, Any], times: int, expected: bool) -> list[float]:
        """Seconds of each judgement of one submission."""
        judge = self._side.code(program, tests)
        found = []
        for _ in range(times):
            began = perf_counter()
            verdict = judge()
            found.append(perf_counter() - began)
            assert verdict is expected
        return found


def main() -> None:
    answer_all(lambda: Side(sys.argv[1]))


if __name__ == "__main__":
    main()

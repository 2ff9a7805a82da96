"""Child process that runs one side of grading.py. It reads JSON commands, one per line, and returns measurements.

The interpreter must have either Palestra (`grading_side.py ours`) or GEM (`grading_side.py gem`) installed.
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

from sides import serve_commands


class Palestra:
    """`grade_math` and `grade_code` with default settings; programs run in the sandbox."""

    def __init__(self) -> None:
        from palestra.grading import grade_code, grade_math

        self._grade_math, self._grade_code = grade_math, grade_code

    def math(self, answer: str, gold: str) -> bool:
        return self._grade_math(answer, gold).correct

    def code(self, program: str, tests: dict[str, Any]) -> Callable[[], bool]:
        return lambda: self._grade_code(program, tests).correct


class Gem:
    """GEM's math grader and code environment. The grader's process pool is not used, because it is slower."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        from gem.envs.math_env import MathEnv

        self._check = MathEnv.check_correct

    def math(self, answer: str, gold: str) -> bool:
        return bool(self._check(f"\\boxed{{{answer}}}", gold))

    def code(self, program: str, tests: dict[str, Any]) -> Callable[[], bool]:
        from datasets import Dataset
        from gem.envs.code_env import CodeEnv

        os.chdir(tempfile.mkdtemp())  # GEM creates a folder per test in the working directory
        rows = Dataset.from_list([{"problem": "?", "tests": json.dumps(tests)}])
        env = CodeEnv(dataset_name="taco", dataset=rows, max_tests=len(tests["inputs"]))
        action = f"```python\n{program}\n```"

        def grade() -> bool:
            env.reset()
            return bool(env.step(action)[1] == 1.0)

        return grade


class Side:
    def __init__(self, name: str) -> None:
        self._side: Any = Palestra() if name == "ours" else Gem()

    def math(self, pairs: list[tuple[str, str, bool]]) -> dict[str, Any]:
        """Return the seconds taken to grade all answers, and the number of answers graded correctly."""
        start = perf_counter()
        grades = [self._side.math(answer, gold) for answer, gold, _ in pairs]
        seconds = perf_counter() - start
        return {"seconds": seconds, "correct": sum(a == b[2] for a, b in zip(grades, pairs, strict=True))}

    def code(self, program: str, tests: dict[str, Any], times: int, expected: bool) -> list[float]:
        """Grade one submission repeatedly and return the seconds that each run takes."""
        grade = self._side.code(program, tests)
        durations = []
        for _ in range(times):
            start = perf_counter()
            correct = grade()
            durations.append(perf_counter() - start)
            assert correct is expected
        return durations


def main() -> None:
    serve_commands(lambda: Side(sys.argv[1]))


if __name__ == "__main__":
    main()

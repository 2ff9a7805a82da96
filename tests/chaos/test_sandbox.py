"""Chaos in the sandbox: programs that attack other programs run next to well-behaved submissions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from palestra.errors import InfrastructureError
from palestra.grading import grade_code
from palestra.tools.sandbox import Limits
from tests.chaos.rounds import rounds

LIMITS = Limits(wall=5.0, cpu=1.0)
TESTS = {"inputs": ["4\n", "5\n"], "outputs": ["8\n", "10\n"]}
RIGHT, WRONG = "print(int(input()) * 2)", "print(int(input()) * 2 + 1)"
SHARE_MEMORY = """
import mmap
blocks = [mmap.mmap(-1, 1 << 26) for _ in range(8)]
for block in blocks:
    block.write(b"x" * len(block))
"""
FORGE_VERDICTS = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"err": 7}\\n' * 9)
    except OSError:
        pass
os._exit(0)
"""
HOSTILE = [
    "import os\nos.kill(0, 9)",
    "import os\nos.kill(0, 2)",
    "import os\nos.kill(-1, 9)",
    "import os\nos.kill(os.getppid(), 9)",
    "import os\nos.killpg(os.getpgrp(), 15)",
    "import os\nfor _ in range(64):\n    if os.fork() == 0:\n        os.kill(os.getppid(), 9)",
    "data = []\nwhile True:\n    data.append(bytearray(1 << 24))",
    SHARE_MEMORY,
    FORGE_VERDICTS,
    "while True:\n    pass",
]


def outcome(program: str) -> str:
    try:
        return "right" if grade_code(program, TESTS, limits=LIMITS).correct else "wrong"
    except InfrastructureError:
        return "failed"


def test_sandbox() -> None:
    """Check that well-behaved submissions are graded normally, and that no attack is graded as correct."""
    for rng in rounds("sandbox"):
        programs = [*[RIGHT] * 8, *[WRONG] * 4, *rng.sample(HOSTILE, 5)]
        rng.shuffle(programs)
        with ThreadPoolExecutor(4) as threads:
            outcomes = list(threads.map(outcome, programs))
        for program, result in zip(programs, outcomes, strict=True):
            if program in HOSTILE:
                assert result != "right", program
            else:
                assert result == ("right" if program == RIGHT else "wrong")

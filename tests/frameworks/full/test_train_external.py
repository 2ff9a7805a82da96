"""Test `palestra train` on environments from other libraries."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.frameworks.frameworks import ROOT, run_program
from tests.server.protocols.outside import free_port, openenv_python, started

PROGRAM = ROOT / "tests" / "frameworks" / "train_external.py"


def check(output: str, low: float, high: float) -> None:
    """Check that the rewards are within the environment's range and not all the same, and that the weights changed."""
    rewards = [float(value) for value in re.findall(r"^step \d+: reward ([-\d.]+)", output, re.MULTILINE)]
    assert len(rewards) == 2, output
    assert all(low < reward < high for reward in rewards), output
    change = re.search(r"largest change of a weight: ([\d.]+)", output)
    assert change is not None
    assert float(change[1]) > 1e-4, output


def test_textarena() -> None:
    folder = ROOT / ".cache" / "frameworks" / "textarena"
    numbers = ",".join(map(str, range(1, 21)))
    arguments = [
        "textarena:GuessTheNumber-v0",
        "--pattern",
        "[#]",
        "--choices",
        numbers,
        "--kwargs",
        '{"max_turns": 4}',
    ]
    check(run_program(str(folder), PROGRAM, *arguments), 0.0, 1.0)


def test_gymnasium() -> None:
    output = run_program("", PROGRAM, "gymnasium:Blackjack-v1", "--pattern", r"\boxed{#}", "--choices", "0,1")
    check(output, -1.0, 1.0)


def test_verifiers() -> None:
    kwargs = '{"load_kwargs": {"gym": "syllogism"}, "split": "train"}'
    arguments = ["verifiers:tests.frameworks.legs", "--pattern", "<answer>#</answer>", "--choices", "Yes,No"]
    check(run_program("verifiers-0.1", PROGRAM, *arguments, "--kwargs", kwargs), 0.0, 1.0)


def test_openenv(tmp_path: Path) -> None:
    """Train on the environment that `openenv init` creates, which rewards long messages."""
    python = openenv_python()
    init = [python, "-m", "openenv.cli", "init", "echo", "--output-dir", str(tmp_path)]
    subprocess.run(init, check=True, capture_output=True, timeout=120)
    port = free_port()
    with started([python, "-m", "server.app", "--port", str(port)], port, cwd=tmp_path / "echo") as url:
        arguments = [f"openenv+{url}", "--pattern", "#", "--choices", "a,word,letters", "--kwargs", '{"max_turns": 2}']
        check(run_program("", PROGRAM, *arguments), 0.0, 2.0)

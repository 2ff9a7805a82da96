"""Test the errors that end a training run for lack of memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.cli import main
from palestra.errors import OutOfMemory
from palestra.training.failures import explained_memory_errors

# Message of PyTorch 2.11 on a GPU that several programs share; its middle is shortened.
ON_A_GPU = (
    "CUDA out of memory. Tried to allocate 714.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 186.31 MiB is "
    "free. Process 711 has 1.22 GiB memory in use. Of the allocated memory 16.54 GiB is allocated by PyTorch, and 1.05 "
    "GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


def allocate_too_much(*_: Any) -> float:
    """Reward hook that needs more memory than a machine has."""
    return float(torch.empty(1 << 52).sum())


def test_an_error_of_a_gpu_names_its_memory_and_the_settings() -> None:
    with pytest.raises(OutOfMemory) as caught, explained_memory_errors():
        raise torch.OutOfMemoryError(ON_A_GPU)
    text = str(caught.value)
    cause = "Tried to allocate 714.00 MiB; the GPU has a total capacity of 139.80 GiB of which 186.31 MiB is free"
    assert text.startswith(f"not enough memory: {cause}. Lower")
    assert "--token-budget" in text
    assert "Process" not in text
    with pytest.raises(OutOfMemory, match="in another form. Lower"), explained_memory_errors():
        raise torch.OutOfMemoryError("CUDA out of memory, in another form.")


def test_other_errors_are_not_changed() -> None:
    with pytest.raises(RuntimeError, match="^device-side assert$"), explained_memory_errors():
        raise RuntimeError("device-side assert")


def test_a_run_without_enough_memory_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "game:GuessTheNumber-v0-easy", "--model", "default:0.1M", "--episodes", "4", "--warm-start", "0"]
    flags += ["--eval-episodes", "2", "--steps", "1", "--reward-hook", f"{__name__}:allocate_too_much"]
    assert main(["train", *flags, "--out", str(tmp_path / "run"), "--plain"]) == 3
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("palestra: learner failed: not enough memory: can't allocate memory")
    assert json.loads((tmp_path / "run" / "error.json").read_text())["kind"] == "OutOfMemory"

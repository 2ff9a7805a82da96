"""Evaluate a mock model and a local model with Inspect on environments and on a suite."""

import argparse
import itertools
import tempfile
from pathlib import Path

from inspect_ai import eval as inspect_eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from palestra.engines.default_model import default_model, save
from palestra.evals.suite import load_suite, with_overrides
from palestra.integrations.inspect_ai import env_task


def main(env: str, tasks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = str(Path(folder) / "logs")
        guesses = itertools.cycle(f"\\boxed{{{number}}}" for number in range(1, 11))
        mock = get_model("mockllm/model", custom_outputs=(output(guess) for guess in guesses))
        task = env_task(env, tasks=tasks)
        [log] = inspect_eval(task, model=mock, log_dir=logs, display="none", max_samples=1)
        report("mock model", log)

        checkpoint = save(*default_model("0.1M", seed=1), Path(folder) / "model")
        local = get_model("hf/local", model_path=str(checkpoint), tokenizer_path=str(checkpoint), device="cpu")
        suite = with_overrides(load_suite("suite:games"), kwargs={}, n=1)
        few = type(suite)(name="games", entries=suite.entries[:3])
        [log] = inspect_eval(env_task(few), model=local, log_dir=logs, display="none", max_tokens=8)
        report("local model", log)
    print("passed")


def output(text: str) -> ModelOutput:
    result = ModelOutput.from_content("mockllm/model", text)
    result.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # Inspect would download a tokenizer
    return result


def report(name: str, log) -> None:  # type: ignore[no-untyped-def]
    if log.status != "success" or log.results is None:
        raise SystemExit(f"{name}: {log.status} {log.error and log.error.message}")
    values = {score.name: score.metrics["mean"].value for score in log.results.scores}
    print(f"{name}: {log.results.completed_samples} samples, {values}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--tasks", type=int, default=3)
    main(**vars(parser.parse_args()))

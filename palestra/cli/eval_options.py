"""Define the options for `palestra eval`."""

from __future__ import annotations

import argparse
from dataclasses import fields

from palestra.agents.settings import AgentSettings
from palestra.cli.env_options import (
    NAME_HELP,
    add_backend,
    add_env_kwargs,
    add_import,
    add_timeouts,
    add_tools_and_wrappers,
)
from palestra.cli.options import add_flag

MAX_FAILED = 0.05
_EPILOG = """\
examples:
  palestra eval game:Sokoban-v0-easy --model http://localhost:8000/v1 -n 200 -k 4 --out runs/a
  palestra eval suite:games --agent expert --json
  palestra eval game:Sokoban-v0-easy --model runs/trained -n 256 --seed 900000    a training run
  palestra eval math:Arithmetic-v0-easy --model Qwen/Qwen3-1.7B --tools python    with a tool
  palestra eval my_package.envs:MyEnv --agent my_package:play                     your own code
  palestra eval http://host:8100/game:Wordle-v0-easy --agent random               an environment on a server
  palestra eval --suites                                                          list the suites

Run the same command again to resume an interrupted evaluation: finished episodes are kept, failed ones are retried.
exit codes: 0 success; 2 usage error; 3 too many episodes without a result (see --max-failed); 130 interrupted
docs/evaluation.md explains the reported numbers and the files in the output folder.
"""
SAMPLING = (
    (
        "temperature",
        float,
        "X",
        "Sampling temperature; 0 always selects the most likely token (default: from the training run, or 1).",
    ),
    (
        "top_p",
        float,
        "X",
        "Nucleus sampling: the total probability of the tokens to sample from (default: from the training run, or 1).",
    ),
    (
        "top_k",
        int,
        "N",
        "Number of most likely tokens to sample from; 0 means all tokens (default: from the training run, or 0).",
    ),
    (
        "min_p",
        float,
        "X",
        "Exclude tokens less likely than this fraction of the most likely one (default: from the training run, or 0).",
    ),
    (
        "max_tokens",
        int,
        "N",
        "Maximum number of tokens per reply (default: the training run's value; otherwise 512, or 4096 with thinking).",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "palestra eval ENV|SUITE ... (--model MODEL | --agent AGENT) [OPTIONS]"
    parser.epilog = _EPILOG
    parser.allow_abbrev = False
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="ENV|SUITE",
        help="Environment or suite to evaluate on: suite:NAME, a suite's TOML file, a glob such as 'game:*-easy', "
        f"{NAME_HELP}.",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="ENV",
        help="Additional environment or pattern to evaluate on; repeatable.",
    )
    parser.add_argument("--suites", action="store_true", help="List the suites that come with Palestra and exit.")
    agent = parser.add_argument_group("agent").add_mutually_exclusive_group()
    agent.add_argument(
        "--model",
        metavar="MODEL",
        help="Model to evaluate: a local folder, the folder of a training run, a Hugging Face id, default:SIZE "
        "for a small untrained model, the URL of an OpenAI-compatible server, or litellm:PROVIDER/MODEL for a hosted "
        "model, for example litellm:anthropic/claude-sonnet-4-5.",
    )
    agent.add_argument(
        "--agent",
        metavar="AGENT",
        help="Agent to evaluate: expert, random, the name of a plug-in, or a Python function or Agent as module:name.",
    )
    model = parser.add_argument_group("model")
    for name, kind, mark, text in SAMPLING:
        model.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=mark, help=text)
    model.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="Stop sequence: end the reply at this text and remove the text from it; repeatable.",
    )
    model.add_argument(
        "--api-model",
        default="",
        metavar="NAME",
        help="Name of the model on the server (default: the first model that the server lists).",
    )
    model.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="Name of the environment variable that holds the server's API key (default: OPENAI_API_KEY; for litellm "
        "models, the provider's variable).",
    )
    model.add_argument(
        "--requests-per-minute",
        type=float,
        default=0,
        metavar="N",
        help="Maximum number of requests to a litellm model that start per minute; 0 means no limit (default: 0).",
    )
    model.add_argument(
        "--tokenizer",
        default="",
        metavar="FOLDER",
        help="Tokenizer of the model on the server, to record exact token ids if the server returns them "
        "(default: exchange chat messages only).",
    )
    model.add_argument(
        "--device",
        default="auto",
        metavar="DEVICE",
        help="Device to run a local model on: cpu, cuda, or auto, which uses a GPU if one is available "
        "(default: auto).",
    )
    model.add_argument(
        "--dtype",
        metavar="DTYPE",
        help="Data type for a local model's weights: float32, bfloat16 or float16 (default: float32 on a "
        "CPU, bfloat16 on a GPU).",
    )
    chat = parser.add_argument_group("conversation (defaults if --model is a training run: that run's settings)")
    for item in fields(AgentSettings):
        add_flag(chat, AgentSettings, item)
    tasks = parser.add_argument_group("tasks")
    tasks.add_argument(
        "-n",
        type=_task_count,
        metavar="N",
        help="Number of tasks per environment, or 'all' for every row of a dataset (default: the suite's number; "
        "without a suite, all rows of a dataset, or 100 tasks).",
    )
    tasks.add_argument(
        "-k",
        type=int,
        metavar="K",
        help="Number of attempts per task (default: the suite's number, otherwise 1).",
    )
    tasks.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help="Seed of the first task; the following tasks use consecutive seeds (default: the suite's seed, otherwise "
        "0).",
    )
    tasks.add_argument(
        "--turns",
        type=int,
        metavar="N",
        help="Maximum number of turns per episode, after which it is truncated (default: the environment's limit).",
    )
    tasks.add_argument(
        "--data-id",
        action="append",
        default=[],
        metavar="FILE",
        help="JSON file with AgentGym item ids, such as textcraft_12, that selects the tasks to play; repeatable "
        "(default: the environment's or suite's own tasks).",
    )
    options = parser.add_argument_group("environment")
    add_import(options)
    add_env_kwargs(options)
    add_tools_and_wrappers(options)
    add_backend(options)
    add_timeouts(options)
    execution = parser.add_argument_group("execution")
    execution.add_argument(
        "--out", metavar="FOLDER", help="Folder to write the evaluation to (default: runs/eval-TARGET-AGENT)."
    )
    execution.add_argument(
        "--overwrite",
        action="store_true",
        help="Delete an existing evaluation in --out and start over (default: resume it).",
    )
    execution.add_argument(
        "--concurrency",
        type=int,
        default=32,
        metavar="N",
        help="Maximum number of episodes to run in parallel (default: 32).",
    )
    execution.add_argument(
        "--retries",
        type=int,
        default=2,
        metavar="N",
        help="Number of times to retry an episode after an infrastructure failure (default: 2).",
    )
    execution.add_argument(
        "--call-timeout",
        type=float,
        metavar="S",
        help="Maximum number of seconds per agent reply, and per step or reset unless --step-timeout or "
        "--reset-timeout is set (default: no limit).",
    )
    execution.add_argument(
        "--max-failed",
        type=float,
        default=MAX_FAILED,
        metavar="X",
        help=f"Maximum fraction of episodes without a result; if exceeded, the exit code is 3 (default: {MAX_FAILED}).",
    )
    execution.add_argument(
        "--price-in",
        type=float,
        metavar="X",
        help="Price in dollars per million input tokens, from which the cost column is computed (default: litellm's "
        "price for a litellm model, otherwise no cost column).",
    )
    execution.add_argument(
        "--price-out",
        type=float,
        metavar="X",
        help="Price in dollars per million output tokens, from which the cost column is computed (default: litellm's "
        "price for a litellm model, otherwise no cost column).",
    )
    output = parser.add_argument_group("output").add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="Print the complete summary as JSON.")
    output.add_argument("--markdown", action="store_true", help="Print the table as Markdown.")
    output.add_argument("--quiet", action="store_true", help="Print only error messages.")


def _task_count(text: str) -> int | str:
    return text if text == "all" else int(text)

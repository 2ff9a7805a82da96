"""The `palestra` command: one file a verb. A user's mistake gets a sentence and exit code 2, never a traceback."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from palestra import __version__
from palestra.errors import ConformanceError, InfrastructureError, TrainingDiverged, UsageError

VERBS = {
    "envs": "list the environments",
    "play": "play one in the terminal, or watch the expert or the random player",
    "check": "prove that environments are sound",
    "init-model": "write a model to start from, without a hub",
    "train": "train an agent by RL, from an untrained or a pretrained model",
    "eval": "play tasks with any agent, and say what can be trusted of the result",
    "compare": "compare two evaluations of the same tasks, paired by seed",
    "rescore": "judge the episodes of an evaluation again, without asking the agent",
    "view": "look at runs in the browser: curves, episodes, tokens; or play there",
    "serve": "serve environments to other processes and machines",
    "search": "look something up, as the search tool does",
    "search-index": "build a search index from JSONL, text or a folder",
    "search-serve": "serve a search index to many workers",
    "world": "write a generated encyclopaedia, and questions about it",
    "mcp-serve": "offer an environment as an MCP server",
    "doctor": "tell what works on this machine, and how to get what does not",
}

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

_EPILOG = """\
examples:
  palestra envs                              what there is
  palestra play game:Sudoku-v0-easy          play it yourself
  palestra play game:Wordle-v0-hard --agent expert --seed 7
  palestra check 'game:Sudoku-*'             prove the laws
  palestra init-model 1M --out models/tiny   an untrained model of a million parameters
  palestra train --env game:GuessTheNumber-v0-easy   an agent learns, on the CPU, in minutes
  palestra eval suite:games --agent expert   success with intervals, by environment, category, level
  palestra compare runs/a runs/b             which of two is better, and could it be chance
  palestra view runs/                        look at runs in the browser
  palestra serve game: babyai: --port 8100   environments for a cluster
  palestra doctor                            what works on this machine
  palestra search-index corpus.jsonl --out corpus.index   something for the search tool to search in
  palestra world --pages 100000 --seed 1 --out world.jsonl   an encyclopaedia that never was
  palestra mcp-serve game:Sudoku-v0-easy     for any MCP client to play

exit codes: 0 done, 1 a check failed, 2 a mistake in the command, 3 something outside failed, 130 interrupted
`palestra VERB --help` explains a verb.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palestra",
        description="A gym where LLM agents gain experience.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"palestra {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, summary in VERBS.items():
        verb = verbs.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module = importlib.import_module(f"palestra.cli.{name.replace('-', '_')}")
        module.add_arguments(verb)
        verb.set_defaults(run=module.run, parser=verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = build_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        _refuse(unknown, getattr(args, "parser", parser))
    if args.verb is None:
        parser.print_help()
        return EXIT_USAGE
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except UsageError as err:
        print(f"palestra: {err}", file=sys.stderr)
        return EXIT_USAGE
    except (ConformanceError, TrainingDiverged) as err:
        print(f"palestra: {err}", file=sys.stderr)
        return EXIT_FAILED
    except InfrastructureError as err:
        print(f"palestra: {err.boundary} failed: {err}", file=sys.stderr)
        return EXIT_INFRASTRUCTURE
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` closed the pipe; nothing is wrong
        return EXIT_OK


def _refuse(unknown: Sequence[str], parser: argparse.ArgumentParser) -> NoReturn:
    """Name what is not known, and the nearest flag that is."""
    known = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    flag = next((text.partition("=")[0] for text in unknown if text.startswith("-")), "")
    near = get_close_matches(flag, known, n=1)
    hint = f". Did you mean {near[0]}?" if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

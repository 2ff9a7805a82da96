"""The `palestra` command. Each subcommand has its own module, which is imported only when it is used.

A usage error prints a one-sentence message without a traceback and exits with code 2.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NoReturn

from palestra import __version__
from palestra.cli import interrupts
from palestra.errors import ConformanceError, InfrastructureError, TrainingDiverged, UsageError

VERBS = {  # verb -> description, in the order of `palestra --help`
    "envs": "List the available environments.",
    "play": "Play an environment in the terminal, or watch the expert or a random player.",
    "check": "Test that environments satisfy the environment contract, or that a server implements the protocol.",
    "train": "Train an agent by reinforcement learning or on stored trajectories.",
    "eval": "Evaluate an agent on environments or suites and report success rates with confidence intervals.",
    "compare": "Compare two evaluations of the same tasks, paired by seed.",
    "rescore": "Grade the stored episodes of an evaluation again without running the agent.",
    "view": "View training runs and evaluations in a web browser: curves, episodes and tokens.",
    "push": "Upload the model of a training run to the Hugging Face hub, with a model card.",
    "serve": "Serve environments over HTTP to other processes and machines.",
    "mcp-serve": "Serve an environment to clients of the Model Context Protocol (MCP).",
    "init-model": "Create a small model to start training from.",
    "search": "Search an index and print the passages that the search tool would return.",
    "search-index": "Build a search index from JSONL files, text files or folders.",
    "search-serve": "Serve a search index over HTTP.",
    "world": "Generate a fictional encyclopedia and questions about it.",
    "new-env": "Create a package with a working environment, an expert and a test to start from.",
    "completion": "Print a script that completes verbs and options in a shell.",
    "doctor": "Check which features work on this machine and print how to enable the others.",
}

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
MAX_EXIT_SECONDS = 4.0
_WITHOUT_PHASES = {"-h", "--help", "--help-all", "--quiet"}

_EPILOG = """\
examples:
  palestra envs                                        list the families of environments
  palestra envs sudoku                                 find environments
  palestra new-env my-puzzles                          start a package with your own environment
  palestra play game:Sudoku-v0-easy                    play an environment yourself
  palestra play game:Wordle-v0-hard --agent expert --seed 7
  palestra check 'game:Sudoku-*'                       test environments
  palestra train --env game:GuessTheNumber-v0-easy     train an agent on the CPU in minutes
  palestra eval suite:games --agent expert             print success rates per environment, category and level
  palestra eval my_package.envs:MyEnv --agent random   evaluate on your own environment
  palestra eval http://host:8100/game:Wordle-v0-easy --agent random   evaluate on an environment on a server
  palestra compare runs/a runs/b                       test whether b is better than a
  palestra view runs/                                  browse runs in a web browser
  palestra serve game: babyai: --port 8100             serve environments to a cluster
  palestra doctor                                      check this machine

`palestra VERB --help` describes the verb's options. docs/environment-names.md explains how environments are named.
exit codes: 0 success, 1 a check failed, 2 usage error, 3 infrastructure failure, 130 interrupted
"""


def build_parser(verbs: Collection[str] = VERBS) -> argparse.ArgumentParser:
    """Return the parser. Only the modules for `verbs` are imported; the other verbs are listed without options."""
    parser = argparse.ArgumentParser(
        prog="palestra",
        description="Palestra: environments, evaluation and reinforcement learning for LLM agents.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"palestra {__version__}", help="Print the version and exit."
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, summary in VERBS.items():
        module = importlib.import_module(f"palestra.cli.{name.replace('-', '_')}") if name in verbs else None
        common = getattr(module, "COMMON_OPTIONS", ())
        verb = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=not common,
        )
        if module is not None:
            if common:
                _add_short_help(verb, common)
            module.add_arguments(verb)
            verb.set_defaults(run=module.run, parser=verb)
    return parser


def _add_short_help(parser: argparse.ArgumentParser, common: Collection[str]) -> None:
    """Add `--help`, which describes only the options in `common`, and `--help-all`."""

    shown = {*common, "--help", "--help-all"}

    class ShortHelp(argparse.Action):
        def __call__(self, *_: object) -> NoReturn:
            hidden = 0
            for action in parser._actions:
                if action.option_strings and shown.isdisjoint(action.option_strings):
                    action.help = argparse.SUPPRESS
                    hidden += 1
            print(parser.format_help(), end="")
            print(f"\n{hidden} further options are listed by `{parser.prog} --help-all`.")
            parser.exit()

    parser.add_argument("-h", "--help", action=ShortHelp, nargs=0, help="Describe the most common options and exit.")
    parser.add_argument("--help-all", action="help", help="Describe all options and exit.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Ctrl-C ends it without a traceback, even during imports."""
    try:
        with interrupts.acknowledged():
            return _run(argv)
    except BrokenPipeError:
        # It is not an error if a pipe's reader, for example `head`, closes it early. Discard the remaining output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (KeyboardInterrupt, Exception) as err:
        if not interrupts.is_cause_of(err):
            raise
        print("\ninterrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    words = [word for word in argv if not word.startswith("-")][:1]
    if not words or not _WITHOUT_PHASES.isdisjoint(argv):
        return _execute(argv, words, build_parser(words))
    from palestra.cli.terminal import line_shown, phases_shown

    with phases_shown():
        with line_shown(f"palestra {words[0]}"):
            parser = build_parser(words)
        return _execute(argv, words, parser)


def _execute(argv: Sequence[str], words: Sequence[str], parser: argparse.ArgumentParser) -> int:
    if words and words[0] not in VERBS:
        from palestra.suggestions import did_you_mean

        hint = did_you_mean(words[0], VERBS) or " `palestra --help` lists the verbs."
        parser.error(f"there is no verb {words[0]!r}.{hint}")
    try:
        args, unknown = parser.parse_known_args(argv)
    except SystemExit:  # after --help
        sys.stdout.flush()
        raise
    if unknown:
        _reject(unknown, getattr(args, "parser", parser))
    if args.verb is None:
        parser.print_help()
        return EXIT_USAGE
    try:
        if getattr(args, "imports", None):
            from palestra.plugins import import_modules

            import_modules(args.imports)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except UsageError as err:
        _print_error(str(err))
        return EXIT_USAGE
    except (ConformanceError, TrainingDiverged) as err:
        _print_error(str(err))
        return EXIT_FAILED
    except InfrastructureError as err:
        _print_error(f"{err.boundary} failed: {err}")
        return EXIT_INFRASTRUCTURE
    except SystemExit as err:
        if err.code:
            raise
        # No verb calls sys.exit(0), so an environment, tool or agent did, before the verb had finished.
        _print_error("an environment or plug-in called sys.exit() before the command had finished")
        return EXIT_FAILED


def _print_error(text: str) -> None:
    from palestra.cli.terminal import fitted

    print(fitted(f"palestra: {text}", stream=sys.stderr), file=sys.stderr)


def entry_point() -> NoReturn:
    """Run one command and end the process, at most `MAX_EXIT_SECONDS` after the command, with its exit code.

    Before Python exits, it waits for all non-daemon threads, and an environment or a library may have started some that
    never end.
    """
    try:
        code = main()
        interrupts.end_on_interrupt(code)
    except KeyboardInterrupt:  # pressed after the command ended, or a second time
        os._exit(EXIT_INTERRUPTED)

    def end() -> None:
        time.sleep(MAX_EXIT_SECONDS)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    threading.Thread(target=end, name="palestra-exit", daemon=True).start()
    sys.exit(code)


def _reject(unknown: Sequence[str], parser: argparse.ArgumentParser) -> NoReturn:
    """Exit with an error that lists the unknown arguments and suggests the most similar option."""
    from palestra.suggestions import suggest

    options = [flag for action in parser._actions for flag in action.option_strings]
    flag = next((text.partition("=")[0] for text in unknown if text.startswith("-")), "")
    candidate = suggest(flag, options) if flag else None
    hint = f". Did you mean {candidate}?" if candidate else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

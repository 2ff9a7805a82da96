"""`palestra completion SHELL`: print a script that completes verbs and options in a shell."""

from __future__ import annotations

import argparse

from palestra.cli import EXIT_OK, build_parser
from palestra.optional import require
from palestra.progress import phase

_EPILOG = """\
examples:
  palestra completion bash > ~/.local/share/bash-completion/completions/palestra
  palestra completion zsh > ~/.zfunc/_palestra
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="Shell for which the script is printed.")


def run(args: argparse.Namespace) -> int:
    shtab = require("shtab", extra="completion")
    with phase("reading the options of all verbs"):
        script = shtab.complete(build_parser(), args.shell)
    print(script)
    return EXIT_OK

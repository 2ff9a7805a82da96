"""`palestra compare BEFORE AFTER`: compare two evaluations on the same tasks, paired by seed."""

from __future__ import annotations

import argparse
import json
import sys

from palestra.cli import EXIT_FAILED, EXIT_OK
from palestra.cli.terminal import fitted, line_width
from palestra.progress import phase

_EPILOG = """\
examples:
  palestra compare runs/a runs/b                       compare b with the baseline a
  palestra compare runs/a runs/b --markdown            format the tables for a pull request
  palestra compare runs/a runs/b --fail-below -0.02    exit with code 1 if the success rate drops by more than 0.02

exit codes: 0 success; 1 the difference is below --fail-below; 2 usage error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("before", metavar="BEFORE", help="Folder of the first evaluation, which is the baseline.")
    parser.add_argument(
        "after", metavar="AFTER", help="Folder of the second evaluation, which is compared with the baseline."
    )
    parser.add_argument(
        "--metric",
        choices=("success", "return", "score"),
        default="success",
        help="Metric to compare for each task (default: success).",
    )
    parser.add_argument(
        "--fail-below",
        type=float,
        metavar="X",
        help="Exit with code 1 if the overall difference, AFTER minus BEFORE, is below this value (default: "
        "never fail).",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--markdown", action="store_true", help="Print the tables as Markdown.")
    output.add_argument(
        "--json",
        action="store_true",
        help="Print all results as JSON, with the tasks that improved or got worse.",
    )


def run(args: argparse.Namespace) -> int:
    with phase("comparing"):
        from palestra.evals.comparison import as_text, compare

        comparison = compare(args.before, args.after, metric=args.metric)
    difference = comparison["total"]["difference"]
    failed = args.fail_below is not None and difference < args.fail_below
    if args.json:
        print(json.dumps({**comparison, "fail_below": args.fail_below, "failed": failed}, indent=2))
    elif args.markdown:
        print(as_text(comparison, as_markdown=True))
    else:
        print(fitted(as_text(comparison, width=line_width())))
    if failed:
        sys.stdout.flush()
        print(f"palestra: the difference is {difference:+.4f}, below {args.fail_below:+g}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK

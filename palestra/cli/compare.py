"""`palestra compare BEFORE AFTER`: two evaluations of the same tasks, paired by seed, for people and for CI."""

from __future__ import annotations

import argparse
import json
import sys

from palestra.cli import EXIT_FAILED, EXIT_OK

_EPILOG = """\
examples:
  palestra compare runs/a runs/b                       how b differs from a
  palestra compare runs/a runs/b --markdown            for a comment on a pull request
  palestra compare runs/a runs/b --fail-below -0.02    exit code 1 where b's success is more than 2 points lower

exit codes: 0 done; 1 the difference is below --fail-below; 2 a mistake in the command
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("before", metavar="BEFORE", help="the folder of an evaluation")
    parser.add_argument("after", metavar="AFTER", help="the folder of another one")
    parser.add_argument("--metric", choices=("success", "return", "score"), default="success", help="(success)")
    parser.add_argument(
        "--fail-below",
        type=float,
        metavar="X",
        help="exit code 1 where AFTER minus BEFORE, over all, is less than this",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--markdown", action="store_true", help="tables for a page")
    shown.add_argument("--json", action="store_true", help="every number, every win and loss")


def run(args: argparse.Namespace) -> int:
    from palestra.evals.comparison import as_text, compare

    found = compare(args.before, args.after, metric=args.metric)
    failed = args.fail_below is not None and found["total"]["difference"] < args.fail_below
    if args.json:
        print(json.dumps({**found, "fail_below": args.fail_below, "failed": failed}, indent=2))
    else:
        print(as_text(found, as_markdown=args.markdown))
    if failed:
        sys.stdout.flush()
        difference = found["total"]["difference"]
        print(f"palestra: the difference is {difference:+.4f}, below {args.fail_below:+g}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK

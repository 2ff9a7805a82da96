"""`palestra rescore RUN --out FOLDER`: grade stored episodes again, without calling the agent."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from palestra.cli.env_options import add_env_kwargs, add_import, env_kwargs
from palestra.cli.eval import MAX_FAILED, exit_code

_EPILOG = """\
examples:
  palestra rescore runs/a --out runs/b                             replay in the current environments
  palestra rescore runs/a --out runs/b --set partial_credit=true   with another keyword
  palestra rescore runs/a --out runs/b --grader my_module:grade    with a function of the trajectory
  palestra compare runs/a runs/b

exit codes: 0 success; 2 wrong usage; 3 more than --max-failed of the episodes have no result
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("run_folder", metavar="RUN", help="Folder of the evaluation to grade again.")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="Folder to write the graded episodes to.")
    parser.add_argument(
        "--grader",
        metavar="module:name",
        help="Grade with this function of a trajectory (default: replay the actions in the environment).",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="Delete the evaluation in --out and start over (default: resume it)."
    )
    parser.add_argument(
        "--concurrency", type=int, default=32, metavar="N", help="Number of episodes to run in parallel (default: 32)."
    )
    parser.add_argument(
        "--max-failed",
        type=float,
        default=MAX_FAILED,
        metavar="X",
        help=f"Fraction of episodes that may end without a result before the exit code is 3 (default: {MAX_FAILED}).",
    )
    parser.add_argument("--json", action="store_true", help="Print the complete summary as JSON.")
    options = parser.add_argument_group("environment")
    add_import(options)
    add_env_kwargs(options)


def run(args: argparse.Namespace) -> int:
    from palestra.evals.report import write_report
    from palestra.evals.rescoring import as_json, rescore
    from palestra.evals.run import EvalSettings
    from palestra.evals.text import table_text

    result = asyncio.run(
        rescore(
            args.run_folder,
            args.out,
            kwargs=env_kwargs(args),
            grader=args.grader,
            settings=EvalSettings(concurrency=args.concurrency),
            overwrite=args.overwrite,
        )
    )
    page = write_report(args.out)
    if args.json:
        print(json.dumps(as_json(result), indent=2))
    else:
        print(table_text(result.evaluation.summary["table"]))
        counts = ", ".join(f"{count} {kind}" for kind, count in result.replays.items())
        print(f"\nepisodes: {counts}; {len(result.flips)} with a different verdict than in {Path(args.run_folder)}")
        for row in result.evaluation.summary["replay"]["episodes"][:20]:
            print(f"  {row['env']} seed {row['seed']}, attempt {row['member']}: {row['replay']}")
        print(f"report: {page}")
    return exit_code(result.evaluation, args.max_failed)

"""`palestra rescore RUN --out FOLDER`: judge stored episodes again, by a changed grader, without asking the agent."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from palestra.cli.eval import MAX_FAILED, verdict
from palestra.cli.options import add_keywords, keywords

_EPILOG = """\
examples:
  palestra rescore runs/a --out runs/b                             by the environments as they are now
  palestra rescore runs/a --out runs/b --set partial_credit=true   with another keyword
  palestra rescore runs/a --out runs/b --grader my_module:grade    by a function of the trajectory
  palestra compare runs/a runs/b

exit codes: 0 done; 2 a mistake in the command; 3 more than --max-failed of the episodes have no result
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("run_folder", metavar="RUN", help="the folder of an evaluation")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the judged episodes go")
    parser.add_argument("--grader", metavar="module:name", help="a function of a trajectory; by default replay")
    parser.add_argument("--overwrite", action="store_true", help="delete the evaluation in --out and start over")
    parser.add_argument("--concurrency", type=int, default=32, metavar="N", help="episodes at once (32)")
    parser.add_argument(
        "--max-failed", type=float, default=MAX_FAILED, metavar="X", help=f"share without a result ({MAX_FAILED})"
    )
    parser.add_argument("--json", action="store_true", help="the whole summary as JSON")
    add_keywords(parser)


def run(args: argparse.Namespace) -> int:
    from palestra.evals.report import write_report
    from palestra.evals.rescoring import as_json, rescore
    from palestra.evals.run import EvalSettings
    from palestra.evals.text import table_text

    found = asyncio.run(
        rescore(
            args.run_folder,
            args.out,
            kwargs=keywords(args.set),
            grader=args.grader,
            settings=EvalSettings(concurrency=args.concurrency),
            overwrite=args.overwrite,
        )
    )
    page = write_report(args.out)
    if args.json:
        print(json.dumps(as_json(found), indent=2))
    else:
        print(table_text(found.evaluation.summary["table"]))
        told = ", ".join(f"{count} {word}" for word, count in found.replays.items())
        print(f"\nepisodes: {told}; {len(found.flips)} with another verdict than in {Path(args.run_folder)}")
        for one in found.evaluation.summary["replay"]["episodes"][:20]:
            print(f"  {one['env']} seed {one['seed']}, attempt {one['member']}: {one['replay']}")
        print(f"report: {page}")
    return verdict(found.evaluation, args.max_failed)

"""`palestra rescore RUN --out FOLDER`: grade stored episodes again without running the agent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from palestra.cli.env_options import add_env_kwargs, add_import, add_timeouts, env_kwargs
from palestra.cli.eval import exit_code
from palestra.cli.eval_options import MAX_FAILED
from palestra.cli.terminal import line_width
from palestra.concurrency import run_sync
from palestra.progress import phase

_EPILOG = """\
examples:
  palestra rescore runs/a --out runs/b                             replay in the current environments
  palestra rescore runs/a --out runs/b --set partial_credit=true   replay with another keyword argument
  palestra rescore runs/a --out runs/b --grader my_module:grade    grade with your own function
  palestra compare runs/a runs/b

exit codes: 0 success; 2 usage error; 3 too many episodes without a result (see --max-failed)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("run_folder", metavar="RUN", help="Folder of the evaluation whose episodes are graded again.")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="Folder to write the regraded evaluation to.")
    parser.add_argument(
        "--grader",
        metavar="module:name",
        help="Python function that grades a trajectory, as module:name (default: replay the actions in the "
        "environment).",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="Delete an existing evaluation in --out and start over (default: resume it).",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        default=32,
        metavar="N",
        help="Maximum number of episodes to grade in parallel (default: 32).",
    )
    parser.add_argument(
        "--max-failed",
        type=float,
        default=MAX_FAILED,
        metavar="X",
        help=f"Maximum fraction of episodes without a result; if exceeded, the exit code is 3 (default: {MAX_FAILED}).",
    )
    parser.add_argument("--json", action="store_true", help="Print the complete summary as JSON.")
    options = parser.add_argument_group("environment")
    add_import(options)
    add_env_kwargs(options)
    add_timeouts(options)


def run(args: argparse.Namespace) -> int:
    with phase("loading"):
        from palestra.evals.report import write_report
        from palestra.evals.rescoring import as_json, rescore
        from palestra.evals.run import EvalSettings
        from palestra.evals.text import table_text

    result = run_sync(
        rescore(
            args.run_folder,
            args.out,
            kwargs=env_kwargs(args),
            grader=args.grader,
            settings=EvalSettings(
                concurrency=args.concurrency, step_timeout=args.step_timeout, reset_timeout=args.reset_timeout
            ),
            overwrite=args.overwrite,
        )
    )
    page = write_report(args.out)
    if args.json:
        print(json.dumps(as_json(result), indent=2))
    else:
        print(table_text(result.evaluation.summary["table"], line_width()))
        counts = ", ".join(f"{count} {kind}" for kind, count in result.replays.items())
        print(f"\nepisodes: {counts}; {len(result.flips)} with a different outcome than in {Path(args.run_folder)}")
        for row in result.evaluation.summary["replay"]["episodes"][:20]:
            print(f"  {row['env']} seed {row['seed']}, attempt {row['member']}: {row['replay']}")
        print(f"report: {page}")
    return exit_code(result.evaluation, args.max_failed)

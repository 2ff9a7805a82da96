"""`palestra world`: generate a fictional encyclopedia and questions about it as JSONL files."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from palestra.errors import BadValue, StoreFailed
from palestra.progress import phase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pages",
        type=int,
        default=2000,
        metavar="N",
        help="Number of encyclopedia pages to generate, from 100 to 1,000,000 (default: 2000).",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="S",
        help="Random seed for generating the encyclopedia; the same seed always produces the same files (default: 0).",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="JSONL file to write the pages to, each with its id, title, text, kind and links."
    )
    parser.add_argument(
        "--questions", metavar="FILE", help="JSONL file to write questions to, each with its answer and proof."
    )
    parser.add_argument("--overwrite", action="store_true", help="Replace the files if they exist.")
    parser.add_argument(
        "--each",
        type=int,
        default=100,
        metavar="K",
        help="Number of questions to generate for each kind of question (default: 100).",
    )


def run(args: argparse.Namespace) -> int:
    if not args.out and not args.questions:
        raise BadValue("nothing to write: give --out FILE for the pages, --questions FILE for questions, or both")
    if args.each < 1:
        raise BadValue(f"--each must be at least 1, got {args.each}")
    for path in (args.out, args.questions):
        if path and Path(path).exists() and not (args.overwrite and Path(path).is_file()):
            raise BadValue(f"{path} already exists; choose another file, or replace it with --overwrite")
    start = time.monotonic()
    try:
        with phase("generating the encyclopedia"):
            from palestra.envs.world import World, write_jsonl, write_questions

            world = World(args.seed, args.pages)
        if args.out:
            with phase("writing pages", args.pages) as shown:
                size = write_jsonl(world, args.out, progress=shown.update)
            print(f"{world.pages:,} pages, {size / 1e6:.1f} MB, {time.monotonic() - start:.1f} s: {args.out}")
            print(f"Index it: palestra search-index {args.out} --out {args.out.removesuffix('.jsonl')}.index")
        if args.questions:
            with phase("writing questions"):
                write_questions(world, args.questions, each=args.each, seed=args.seed)
            print(f"{args.each:,} questions for each kind of question: {args.questions}")
    except OSError as err:  # for example a full disk or missing permissions
        raise StoreFailed(f"{err.filename or args.out or args.questions} could not be written: {err}") from err
    return 0

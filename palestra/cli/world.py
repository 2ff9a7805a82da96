"""`palestra world --pages N --seed S --out FILE`: numbers -> a generated encyclopaedia as JSONL, and questions."""

from __future__ import annotations

import argparse
import sys
import time

from palestra.errors import BadValue, StoreFailed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=2000, metavar="N", help="how many, 100 to 1,000,000 (2000)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="which world; the same seed, the same bytes (0)"
    )
    parser.add_argument("--out", metavar="FILE", help="the pages: rows of id, title, text, kind and links")
    parser.add_argument("--questions", metavar="FILE", help="questions with answers and proofs")
    parser.add_argument("--each", type=int, default=100, metavar="K", help="questions of every kind (100)")


def run(args: argparse.Namespace) -> int:
    from palestra.envs.world import World, write_jsonl, write_questions

    if not args.out and not args.questions:
        raise BadValue("say where to: --out FILE for the pages, --questions FILE for questions")
    if args.each < 1:
        raise BadValue(f"--each is a whole number from 1 up, got {args.each}")
    world = World(args.seed, args.pages)
    begun = time.monotonic()
    try:
        if args.out:
            size = write_jsonl(world, args.out, progress=_told if sys.stderr.isatty() else None)
            if sys.stderr.isatty():
                print(file=sys.stderr)
            print(f"{world.pages:,} pages, {size / 1e6:.1f} MB, {time.monotonic() - begun:.1f} s: {args.out}")
            print(f"Index it: palestra search-index {args.out} --out {args.out.removesuffix('.jsonl')}.index")
        if args.questions:
            write_questions(world, args.questions, each=args.each, seed=args.seed)
            print(f"{args.each:,} questions of every kind: {args.questions}")
    except OSError as err:  # a full disk, a folder that may not be written to
        raise StoreFailed(f"{err.filename or args.out or args.questions} could not be written: {err}") from err
    return 0


def _told(pages: int) -> None:
    sys.stderr.write(f"\rpages: {pages:,}          ")
    sys.stderr.flush()

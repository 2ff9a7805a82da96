"""`palestra search-index SOURCE... --out DIR`: files and folders -> an index to search in."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from palestra.errors import BadValue, StoreFailed

if TYPE_CHECKING:
    from palestra.tools.search import Index


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="JSONL (rows with `contents`, or `text` and `title`; .gz too), text files, folders of both",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--embedded", action="store_true", help="index the made-up encyclopedia that comes with Palestra"
    )
    parser.add_argument("--words", type=int, default=100, metavar="N", help="words of a passage cut from text (100)")
    parser.add_argument("--k1", type=float, default=0.9, help="BM25: how much repetition counts (0.9)")
    parser.add_argument("--b", type=float, default=0.4, help="BM25: how much long passages are held back (0.4)")
    parser.add_argument(
        "--analyser", choices=["english", "plain"], default="english", help="stems and stop words, or not"
    )
    parser.add_argument(
        "--dense",
        metavar="ENCODER",
        help="add vectors: ngrams, hf:MODEL, or http://HOST/v1/embeddings#MODEL",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an index that is there")


def run(args: argparse.Namespace) -> int:
    if bool(args.sources) == args.embedded:
        raise BadValue("say what to index: files and folders, or --embedded")
    begun = time.monotonic()
    try:
        index = _built(args)
    except OSError as err:  # a full disk, a folder that may not be written to
        raise StoreFailed(f"{args.out} could not be written: {err}") from err
    if sys.stderr.isatty():
        print(file=sys.stderr)
    meta = index.meta
    print(f"{meta.passages:,} passages, {meta.terms:,} terms, {time.monotonic() - begun:.1f} s: {args.out}")
    print(f'Try it: palestra search "some words" --index {args.out}')
    return 0


def _built(args: argparse.Namespace) -> Index:
    from palestra.tools.search import Index, encoder_of, read
    from palestra.tools.search.corpus import generated

    return Index.build(
        generated() if args.embedded else read(args.sources, words=args.words),
        args.out,
        k1=args.k1,
        b=args.b,
        analyse=args.analyser,
        encoder=encoder_of(args.dense) if args.dense else None,
        overwrite=args.overwrite,
        progress=_told if sys.stderr.isatty() else None,
    )


def _told(what: str, done: int) -> None:
    sys.stderr.write(f"\r{what}: {done:,}          ")
    sys.stderr.flush()

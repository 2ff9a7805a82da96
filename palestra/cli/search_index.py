"""`palestra search-index SOURCE... --out DIR`: build a search index from files and folders."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from palestra.errors import BadValue, StoreFailed
from palestra.progress import counted, phase

if TYPE_CHECKING:
    from palestra.tools.search import Index


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="Files to index: JSONL files (rows with `contents`, or with `text` and `title`; .gz is "
        "supported), text files, or folders of such files.",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="Folder to write the index to.")
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="Index the fictional encyclopedia that comes with Palestra instead of SOURCE files.",
    )
    parser.add_argument(
        "--words",
        type=int,
        default=100,
        metavar="N",
        help="Maximum number of words per passage when text files are split into passages (default: 100).",
    )
    parser.add_argument(
        "--k1",
        type=float,
        default=0.9,
        help="BM25 parameter k1; higher values give more weight to terms that occur repeatedly (default: 0.9).",
    )
    parser.add_argument(
        "--b",
        type=float,
        default=0.4,
        help="BM25 parameter b from 0 to 1; higher values reduce the scores of long passages more (default: 0.4).",
    )
    parser.add_argument(
        "--analyser",
        choices=["english", "plain"],
        default="english",
        help="Text analysis: 'english' removes stop words and stems the other words, 'plain' keeps every word "
        "(default: english).",
    )
    parser.add_argument(
        "--dense",
        metavar="ENCODER",
        help="Encoder whose vectors are stored for dense search: ngrams, hf:MODEL or "
        "http://HOST/v1/embeddings#MODEL (default: no vectors).",
    )
    parser.add_argument("--overwrite", action="store_true", help="Replace an existing index in the folder.")


def run(args: argparse.Namespace) -> int:
    if bool(args.sources) == args.embedded:
        raise BadValue("pass either SOURCE files and folders, or --embedded")
    start = time.monotonic()
    try:
        index = _build(args)
    except OSError as err:  # for example a full disk or missing permissions
        raise StoreFailed(f"{args.out} could not be written: {err}") from err
    meta = index.meta
    print(f"{meta.passages:,} passages, {meta.terms:,} terms, {time.monotonic() - start:.1f} s: {args.out}")
    print(f'Try it: palestra search "some words" --index {args.out}')
    return 0


def _build(args: argparse.Namespace) -> Index:
    with phase("reading passages") as shown:
        from palestra.tools.search import Index, get_encoder, read
        from palestra.tools.search.encyclopedia import encyclopedia_passages

        passages = encyclopedia_passages() if args.embedded else read(args.sources, words=args.words)
        return Index.build(
            counted(passages, shown),
            args.out,
            k1=args.k1,
            b=args.b,
            analyse=args.analyser,
            encoder=get_encoder(args.dense) if args.dense else None,
            overwrite=args.overwrite,
            progress=lambda text, done: shown.update(done, text),
        )

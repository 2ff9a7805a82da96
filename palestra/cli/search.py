"""`palestra search QUERY`: search an index, a search server or the built-in encyclopedia."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from palestra.progress import phase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="Words or a question to search for.")
    parser.add_argument(
        "--index",
        default="",
        metavar="DIR|URL",
        help="Folder of an index or URL of a search server (default: the built-in encyclopedia).",
    )
    parser.add_argument("--topk", type=int, default=3, metavar="K", help="Number of passages to return (default: 3).")
    parser.add_argument(
        "--mode",
        choices=["bm25", "dense", "hybrid"],
        default="bm25",
        help="Ranking method; 'dense' and 'hybrid' require an index that was built with --dense (default: bm25).",
    )
    parser.add_argument(
        "--json", action="store_true", help="Print each passage and its score as one JSON object per line."
    )


def run(args: argparse.Namespace) -> int:
    with phase("searching"):
        from palestra.tools.search import SearchTool
        from palestra.tools.search.passages import format_hits

        hits = SearchTool(args.index, topk=args.topk, mode=args.mode).hits(args.query)
    if args.json:
        for hit in hits:
            print(json.dumps({**asdict(hit.passage), "score": hit.score}, ensure_ascii=False))
    else:
        print(format_hits(hits))
    return 0

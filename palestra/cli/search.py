"""`palestra search QUERY`: what a model would read, from an index, a server or the embedded corpus."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="the words to look for")
    parser.add_argument(
        "--index",
        default="",
        metavar="DIR|URL",
        help="an index or a retriever's address; the embedded corpus by default",
    )
    parser.add_argument("--topk", type=int, default=3, metavar="K", help="how many passages (3)")
    parser.add_argument("--mode", choices=["bm25", "dense", "hybrid"], default="bm25", help="how to rank (bm25)")
    parser.add_argument("--json", action="store_true", help="hits with their scores, as JSON lines")


def run(args: argparse.Namespace) -> int:
    from palestra.tools.search import SearchTool
    from palestra.tools.search.hit import told

    hits = SearchTool(args.index, topk=args.topk, mode=args.mode).hits(args.query)
    if args.json:
        for hit in hits:
            print(json.dumps({**asdict(hit.passage), "score": hit.score}, ensure_ascii=False))
    else:
        print(told(hits))
    return 0

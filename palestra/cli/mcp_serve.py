"""`palestra mcp-serve ID`: serve an environment to MCP clients."""

from __future__ import annotations

import argparse

from palestra.cli.options import add_keywords, keywords


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the environment, such as game:Sudoku-v0-easy")
    parser.add_argument(
        "--http", type=int, metavar="PORT", help="serve streamable HTTP on this port (0: a free one); stdio by default"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen with --http (127.0.0.1)")
    parser.add_argument("--seed", type=int, help="the first episode, where a client asks for none")
    parser.add_argument(
        "--tools", nargs="*", default=[], metavar="TOOL", help="tools the player may use, such as python"
    )
    add_keywords(parser)


def run(args: argparse.Namespace) -> int:
    from palestra.integrations.mcp import serve

    serve(args.id, http=args.http, host=args.host, seed=args.seed, tools=args.tools, **keywords(args.set))
    return 0

"""`palestra search-serve [INDEX]`: serve a search index over HTTP with Search-R1's protocol."""

from __future__ import annotations

import argparse
import os
import socket
from typing import Any

from palestra.cli.interrupts import deferred_interrupts
from palestra.errors import BadValue, ToolFailed
from palestra.progress import phase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "index",
        nargs="?",
        default="",
        metavar="INDEX",
        help="Folder of the index to serve (default: the built-in encyclopedia).",
    )
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: 127.0.0.1).")
    parser.add_argument(
        "--port", type=int, default=8000, help="Port to listen on; 0 selects a free port and prints it (default: 8000)."
    )
    parser.add_argument(
        "--topk",
        type=int,
        default=3,
        metavar="K",
        help="Number of passages to return if a request does not contain `topk` (default: 3).",
    )
    parser.add_argument(
        "--mode",
        choices=["bm25", "dense", "hybrid"],
        default="bm25",
        help="Ranking method; 'dense' and 'hybrid' require an index that was built with --dense (default: bm25).",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="Number of server processes that share the port; raise it to serve more requests per second (default: 1).",
    )


def run(args: argparse.Namespace) -> int:
    import multiprocessing  # imported here to keep `--help` fast

    if args.workers < 1:
        raise BadValue(f"--workers must be at least 1, got {args.workers}")
    with phase("opening the index"):
        from palestra.tools.search import SearchTool
        from palestra.tools.search.tool import open_index

        SearchTool(args.index, topk=args.topk, mode=args.mode)  # report configuration errors before any process starts
        open_index(args.index)
    with _bind(args.host, args.port, reuse_port=args.workers > 1) as listener:
        port = listener.getsockname()[1]
        if args.workers == 1:
            listener.close()
        options = {
            "host": args.host,
            "port": port,
            "topk": args.topk,
            "mode": args.mode,
            "reuse_port": args.workers > 1,
        }
        helpers = [
            multiprocessing.get_context("spawn").Process(target=_serve, args=(args.index, options, os.getpid()))
            for _ in range(args.workers - 1)
        ]
        with deferred_interrupts():  # only this process handles Ctrl-C, and stops the others
            for helper in helpers:
                helper.start()
        print(f"serving on http://{args.host}:{port}/retrieve (Ctrl-C stops)", flush=True)
        try:
            _serve(args.index, options, None)
        finally:
            for helper in helpers:
                helper.terminate()
                helper.join()
    return 0


def _bind(host: str, port: int, *, reuse_port: bool) -> socket.socket:
    """Bind a socket that reserves the port for all workers; raise ToolFailed if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as err:
        listener.close()
        raise ToolFailed(f"cannot listen on {host}:{port}: {err.strerror}; choose another with --port") from err
    return listener


def _serve(source: str, options: dict[str, Any], parent: int | None) -> None:
    from palestra.tools.search.server import serve
    from palestra.tools.search.tool import open_index

    serve(open_index(source), parent=parent, **options)

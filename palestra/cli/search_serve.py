"""`palestra search-serve [INDEX]`: one index for many workers, over HTTP, with Search-R1's requests and answers."""

from __future__ import annotations

import argparse
import os
import signal
import socket
from typing import Any

from palestra.errors import BadValue, ToolFailed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "index", nargs="?", default="", metavar="INDEX", help="an index; the embedded corpus by default"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one, which is printed (8000)")
    parser.add_argument("--topk", type=int, default=3, metavar="K", help="hits where a request does not say (3)")
    parser.add_argument("--mode", choices=["bm25", "dense", "hybrid"], default="bm25", help="how to rank (bm25)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that share the port (1)")


def run(args: argparse.Namespace) -> int:
    import multiprocessing  # every verb's module is loaded to parse a command line

    from palestra.tools.search import SearchTool

    if args.workers < 1:
        raise BadValue(f"--workers is at least 1, got {args.workers}")
    SearchTool(args.index, topk=args.topk, mode=args.mode)  # says what is wrong before anything is started
    with _held(args.host, args.port, several=args.workers > 1) as held:
        port = held.getsockname()[1]
        if args.workers == 1:
            held.close()
        options = {"host": args.host, "port": port, "topk": args.topk, "mode": args.mode, "several": args.workers > 1}
        helpers = [
            multiprocessing.get_context("spawn").Process(target=_serve, args=(args.index, options, os.getpid()))
            for _ in range(args.workers - 1)
        ]
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


def _held(host: str, port: int, *, several: bool) -> socket.socket:
    """The port, taken: so that all workers get the same one, and a taken one is told in a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if several:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        held.bind((host, port))
    except OSError as err:
        held.close()
        raise ToolFailed(f"cannot listen on {host}:{port}: {err.strerror}; choose another with --port") from err
    return held


def _serve(source: str, options: dict[str, Any], parent: int | None) -> None:
    from palestra.tools.search.server import serve
    from palestra.tools.search.tool import opened

    if parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends its helpers
    serve(opened(source), parent=parent, **options)

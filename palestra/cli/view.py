"""`palestra view [FOLDER]`: browse runs in the browser: curves, episodes, tokens, and games to play."""

from __future__ import annotations

import argparse
import os

from palestra.cli.env_options import add_import

TOKEN_VARIABLE = "PALESTRA_VIEW_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", default="runs", metavar="FOLDER", help="Folder of a run, or of many runs (default: runs)."
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="Address to listen on; any address but that of this machine needs --token (default: 127.0.0.1).",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8300,
        metavar="PORT",
        help="Port to listen on; 0 selects a free port and prints it (default: 8300).",
    )
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help=f"Require this secret from visitors; the variable {TOKEN_VARIABLE} keeps it out of process lists.",
    )
    add_import(parser)


def run(args: argparse.Namespace) -> int:
    from palestra.viewer.run import serve

    token = args.token or os.environ.get(TOKEN_VARIABLE) or None

    def print_address(address: str) -> None:
        hint = " (add ?token=... once)" if token else ""
        print(f"{args.folder} is shown at {address}{hint}. Press Ctrl-C to stop.", flush=True)

    serve(args.folder, host=args.host, port=args.port, token=token, ready=print_address)
    return 0

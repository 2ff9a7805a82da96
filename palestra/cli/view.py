"""`palestra view [FOLDER]`: view runs in a web browser: curves, episodes, tokens and playable environments."""

from __future__ import annotations

import argparse
import os

from palestra.cli.env_options import add_import, add_timeouts
from palestra.progress import phase

TOKEN_VARIABLE = "PALESTRA_VIEW_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        default="runs",
        metavar="FOLDER",
        help="Folder of one run, or folder that contains several runs (default: runs).",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="Address to listen on; any address other than loopback requires --token (default: 127.0.0.1).",
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
        help=f"Secret that visitors must provide; set the {TOKEN_VARIABLE} environment variable instead to hide it "
        "from process lists (default: none).",
    )
    add_import(parser)
    add_timeouts(parser)


def run(args: argparse.Namespace) -> int:
    with phase("starting the viewer"):
        from palestra.viewer.run import serve

    token = args.token or os.environ.get(TOKEN_VARIABLE) or None

    def print_address(address: str) -> None:
        hint = " (append ?token=... on the first visit)" if token else ""
        print(f"Serving {args.folder} at {address}{hint}. Press Ctrl-C to stop.", flush=True)

    serve(
        args.folder,
        host=args.host,
        port=args.port,
        token=token,
        step_timeout=args.step_timeout,
        reset_timeout=args.reset_timeout,
        ready=print_address,
    )
    return 0

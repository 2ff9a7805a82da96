"""`palestra view [FOLDER]`: runs in the browser: curves, episodes, tokens, and a place to play."""

from __future__ import annotations

import argparse
import os

TOKEN = "PALESTRA_VIEW_TOKEN"  # the name of a variable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="with runs in it, or a run (runs)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; any but this machine needs --token (127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8300, help="0 takes a free one, which is printed (8300)")
    parser.add_argument("--token", help=f"a secret that visitors must bring; {TOKEN} hides it from other users' ps")


def run(args: argparse.Namespace) -> int:
    from palestra.viewer.serve import serve  # every verb's module is loaded to parse a command line

    token = args.token or os.environ.get(TOKEN) or None

    def ready(address: str) -> None:
        asked = " (add ?token=... once)" if token else ""
        print(f"{args.folder} is shown at {address}{asked}; Ctrl-C stops", flush=True)

    serve(args.folder, host=args.host, port=args.port, token=token, ready=ready)
    return 0

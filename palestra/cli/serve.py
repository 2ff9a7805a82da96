"""`palestra serve ENV ...`: environments for other processes and machines."""

from __future__ import annotations

import argparse
import os

from palestra.errors import BadValue

TOKEN = "PALESTRA_TOKEN"  # the name of a variable

_EPILOG = """\
examples:
  palestra serve game:Wordle-v0-hard babyai: --workers 2
  palestra serve sciworld: --host 0.0.0.0 --token-file tokens.txt
  palestra serve game: sciworld: --python sciworld=/opt/sci/bin/python

Then, anywhere:
  palestra.make("http://HOST:8100/game:Wordle-v0-hard", token=...)
  palestra.make_vec("http://HOST:8100/babyai:GoTo-v0", num_envs=256)

GET /health, /ready, /metrics and /openapi.json tell how it is and what it speaks. SIGTERM drains it: no new sessions,
some time for those there are. A second one stops at once.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("envs", nargs="+", metavar="ENV", help="an id, or a whole family: game:Wordle-v0-hard, babyai:")
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; any but this machine needs tokens (127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8100, help="0 takes a free one, which is printed (8100)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes for environments (cores)")
    parser.add_argument(
        "--token-file", metavar="FILE", help=f"a token a line, or `name token`; {TOKEN} can hold a single one"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FAMILY=PATH",
        help="run a family under another interpreter, whose packages clash with ours; repeat for more",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="that registers environments of your own; repeat for more",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-sessions", type=int, default=4_096, help="open at once (4096)")
    limits.add_argument("--sessions-per-client", type=int, metavar="N", help="of one token (no limit)")
    limits.add_argument("--rate", type=float, metavar="N", help="requests a second, of one token (no limit)")
    limits.add_argument("--lease", type=float, default=600.0, metavar="S", help="seconds a session lives unused (600)")
    limits.add_argument(
        "--step-timeout", type=float, default=120.0, metavar="S", help="seconds for one step or reset (120)"
    )
    limits.add_argument("--max-body", type=float, default=16.0, metavar="MB", help="of one request (16)")
    limits.add_argument("--memory", type=float, metavar="MB", help="of one worker (no limit)")
    limits.add_argument(
        "--any-kwargs", action="store_true", help="let clients give keywords that may name files of this machine"
    )
    running = parser.add_argument_group("running")
    running.add_argument("--drain", type=float, default=30.0, metavar="S", help="seconds for sessions on SIGTERM (30)")
    running.add_argument("--node", default="", help="begins the names of sessions, for balancers that route by path")
    running.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="of the JSON lines on standard error; debug has every request (info)",
    )


def run(args: argparse.Namespace) -> int:
    from palestra.optional import require
    from palestra.server import create_app
    from palestra.sockets import is_loopback, listen

    for module in ("msgspec", "uvicorn", "websockets"):
        require(module, extra="serve")
    from palestra.server.run import run as run_server
    from palestra.server.run import set_up_log
    from palestra.server.settings import read_tokens

    tokens = read_tokens(args.token_file) if args.token_file else {}
    if not tokens and os.environ.get(TOKEN):
        tokens = {os.environ[TOKEN]: "client"}
    near = is_loopback(args.host)
    if not near and not tokens:
        raise BadValue(
            f"others could use this machine at {args.host}: give them a secret with --token-file FILE "
            f"(openssl rand -hex 16 > FILE) or {TOKEN}, or leave --host out"
        )
    app = create_app(
        args.envs,
        workers=args.workers,
        python=args.python,
        imports=args.imports,
        tokens=tokens,
        any_host=not near or bool(tokens),
        any_kwargs=args.any_kwargs,
        node=args.node,
        lease=args.lease,
        step_timeout=args.step_timeout,
        max_sessions=args.max_sessions,
        sessions_per_client=args.sessions_per_client,
        rate=args.rate,
        max_body=int(args.max_body * 2**20),
        memory=None if args.memory is None else int(args.memory * 2**20),
    )
    set_up_log(args.log_level)
    count = len(app.settings.envs)

    def ready(address: str) -> None:
        what = app.settings.envs[0] if count == 1 else f"{count} environments"
        print(f"{what} at {address}, {args.workers} workers; Ctrl-C stops", flush=True)

    run_server(app, listen(args.host, args.port, backlog=2_048), drain=args.drain, ready=ready)
    return 0

"""`palestra serve ENV ...`: serve environments to other processes and machines."""

from __future__ import annotations

import argparse
import sys

from palestra.cli.env_options import add_import
from palestra.machine import usable_cores

_EPILOG = """\
examples:
  palestra serve game:Wordle-v0-hard babyai: --workers 2
  palestra serve my_package.envs:MyEnv --host 0.0.0.0 --token-file tokens.txt
  palestra serve game: sciworld: --python sciworld=/opt/sci/bin/python

Clients connect by URL:
  palestra.make("http://HOST:8100/game:Wordle-v0-hard", token=...)
  palestra.make_vec("http://HOST:8100/babyai:GoTo-v0", num_envs=256)

GET /health, /ready, /metrics and /openapi.json describe the server. After SIGTERM, the server accepts no new sessions
and lets open sessions continue for --drain seconds. A second SIGTERM stops it immediately.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "envs",
        nargs="+",
        metavar="ENV",
        help="Environment to serve: an id, module:Class, or a whole family such as babyai:.",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="Address to listen on; any address other than loopback requires tokens (default: 127.0.0.1).",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8100,
        help="Port to listen on; 0 selects a free port and prints it (default: 8100).",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=usable_cores(),
        help="Number of worker processes that run environments (default: number of CPU cores).",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="File of accepted tokens, with one `token` or `name token` per line; a single token can be set in the "
        "PALESTRA_TOKEN environment variable instead.",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FAMILY=PATH",
        help="Python interpreter that runs a family's environments, for example if their packages conflict with "
        "Palestra's; repeatable.",
    )
    add_import(parser)
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-sessions", type=int, default=4_096, metavar="N", help="Maximum number of open sessions (default: 4096)."
    )
    limits.add_argument(
        "--sessions-per-client",
        type=int,
        metavar="N",
        help="Maximum number of open sessions per token (default: half of --max-sessions if there are several tokens, "
        "otherwise no limit).",
    )
    limits.add_argument(
        "--rate",
        type=float,
        metavar="N",
        help="Maximum number of requests per second for each token (default: no limit).",
    )
    limits.add_argument(
        "--lease",
        type=float,
        default=600.0,
        metavar="S",
        help="Seconds without a request after which a session is closed (default: 600).",
    )
    limits.add_argument(
        "--step-timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="Maximum number of seconds per step; a session whose step exceeds this is terminated (default: 120).",
    )
    limits.add_argument(
        "--reset-timeout",
        type=float,
        metavar="S",
        help="Maximum number of seconds to create or reset an environment (default: the value of --step-timeout).",
    )
    limits.add_argument(
        "--max-body", type=float, default=16.0, metavar="MIB", help="Maximum size of a request in MiB (default: 16)."
    )
    limits.add_argument(
        "--buffer",
        type=float,
        default=512.0,
        metavar="MIB",
        help="Maximum size in MiB of all requests and responses in flight; requests beyond it are refused and must be "
        "retried (default: 512).",
    )
    limits.add_argument(
        "--buffer-per-client",
        type=float,
        default=64.0,
        metavar="MIB",
        help="Maximum size in MiB of one client's requests and responses in flight; access tokens identify clients "
        "(default: 64).",
    )
    limits.add_argument(
        "--memory", type=float, metavar="MIB", help="Maximum memory for each worker process in MiB (default: no limit)."
    )
    limits.add_argument(
        "--any-kwargs",
        action="store_true",
        help="Accept keyword arguments from clients even if they may refer to files on this machine (default: "
        "reject them).",
    )
    operation = parser.add_argument_group("operation")
    operation.add_argument(
        "--drain",
        type=float,
        default=30.0,
        metavar="S",
        help="Seconds for which open sessions may continue after SIGTERM (default: 30).",
    )
    operation.add_argument(
        "--node",
        default="",
        metavar="NAME",
        help="Prefix for this server's session names, for load balancers that route requests by path (default: none).",
    )
    operation.add_argument(
        "--debug",
        action="store_true",
        help="Send exception messages and tracebacks from environments to all clients (default: only if --host is a "
        "loopback address; the log contains them otherwise).",
    )
    operation.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="Minimum level of the JSON log lines on standard error; 'debug' logs every request (default: info).",
    )


def run(args: argparse.Namespace) -> int:
    if sys.stderr.isatty():
        print(f"starting {args.workers} worker processes", file=sys.stderr, flush=True)
    from palestra.server import serve

    def print_url(url: str) -> None:
        print(f"Serving {' '.join(args.envs)} at {url}, {args.workers} workers. Press Ctrl-C to stop.", flush=True)

    serve(
        args.envs,
        host=args.host,
        port=args.port,
        workers=args.workers,
        python=args.python,
        imports=args.imports,
        token_file=args.token_file,
        max_sessions=args.max_sessions,
        sessions_per_client=args.sessions_per_client,
        rate=args.rate,
        lease=args.lease,
        step_timeout=args.step_timeout,
        reset_timeout=args.reset_timeout,
        max_body=args.max_body,
        buffer=args.buffer,
        buffer_per_client=args.buffer_per_client,
        memory=args.memory,
        any_kwargs=args.any_kwargs,
        debug=args.debug,
        drain=args.drain,
        node=args.node,
        log_level=args.log_level,
        on_ready=print_url,
    )
    return 0

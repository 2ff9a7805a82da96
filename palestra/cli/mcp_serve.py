"""`palestra mcp-serve ENV`: serve an environment to Model Context Protocol (MCP) clients."""

from __future__ import annotations

import argparse
import sys

from palestra.cli import EXIT_INTERRUPTED
from palestra.cli.env_options import (
    NAME_HELP,
    add_env_kwargs,
    add_import,
    add_timeouts,
    add_tools_and_wrappers,
    env_kwargs,
)
from palestra.cli.interrupts import end_on_interrupt
from palestra.progress import phase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", help=f"Environment to serve: {NAME_HELP}.")
    parser.add_argument(
        "--http",
        type=int,
        metavar="PORT",
        help="Port on which to serve MCP's streamable HTTP transport; 0 selects a free port (default: use standard "
        "input and output instead).",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="Address to listen on; used only with --http (default: 127.0.0.1).",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help="Seed from which episodes are derived if the client passes no seed (default: random seeds).",
    )
    options = parser.add_argument_group("environment")
    add_import(options)
    add_env_kwargs(options)
    add_tools_and_wrappers(options)
    add_timeouts(options)


def run(args: argparse.Namespace) -> int:
    with phase("starting the MCP server"):
        from palestra.integrations.mcp import serve

    if args.http is None:
        end_on_interrupt(EXIT_INTERRUPTED)  # the thread that reads standard input cannot be interrupted
        if sys.stderr.isatty():
            print(f"Serving {args.env} on standard input and output. Press Ctrl-C to stop.", file=sys.stderr)
    options = {"tools": args.tools, "max_tool_calls": args.max_tool_calls, "wrappers": args.wrappers}
    options |= {"step_timeout": args.step_timeout, "reset_timeout": args.reset_timeout}
    serve(args.env, http=args.http, host=args.host, seed=args.seed, **options, **env_kwargs(args))
    return 0

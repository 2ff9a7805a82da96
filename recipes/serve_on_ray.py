"""Serve environments with Ray Serve: each node is one replica with its own path, so that sessions stay on their node.

    python recipes/serve_on_ray.py game:Wordle-v0-hard babyai: --nodes a b --port 8000

Clients use `palestra.make("http://HOST:8000/a/game:Wordle-v0-hard", token=...)`. Ray restarts a node that fails; its
sessions are reported as lost, and the other nodes are not affected. The script uses a running cluster (`ray start`) or
starts one on this machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import ray
from ray import serve


def node(name: str, envs: Sequence[str], *, workers: int, tokens: dict[str, str]) -> Any:
    """Return the application for one node: a server with `workers` processes, for which Ray reserves CPUs."""

    def build() -> Any:
        """Build the ASGI application inside the replica, which starts the worker processes."""
        from palestra.server import create_app

        return create_app(envs, workers=workers, node=name, tokens=tokens, any_host=True)

    deployment: Any = serve.deployment(
        serve.ingress(build)(),
        name=name,
        num_replicas=1,  # a session runs in one process, so scale by adding nodes instead of replicas
        max_ongoing_requests=4_096,  # a high limit for Ray, because the server enforces its own limits
        health_check_period_s=1,  # a node that fails is replaced within seconds
        ray_actor_options={"num_cpus": workers},
    )
    return deployment.bind()


def local_cluster(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments to `ray.init` for a cluster on this machine."""
    cpus = args.workers * len(args.nodes) + 1
    return {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "envs", nargs="+", metavar="ENV", help="Environments to serve: ids, or families such as babyai:."
    )
    parser.add_argument("--nodes", nargs="+", default=["a", "b"], metavar="NAME", help="Node names (default: a b).")
    parser.add_argument("--workers", type=int, default=1, help="Worker processes per node (default: 1).")
    parser.add_argument(
        "--address",
        default="auto",
        help="Address of the Ray cluster; `local` starts one on this machine (default: auto).",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="Address on which Ray's proxies listen (default: 127.0.0.1)."
    )
    parser.add_argument("--port", type=int, default=8000, help="Port on which the proxies listen (default: 8000).")
    args = parser.parse_args()
    token = os.environ.get("PALESTRA_TOKEN", "")
    if not token:
        parser.error(
            "set PALESTRA_TOKEN, for example with `openssl rand -hex 16`: behind a proxy, all clients seem to be local"
        )

    try:
        ray.init(address=args.address, log_to_driver=False, **(local_cluster(args) if args.address == "local" else {}))
    except ConnectionError:  # no cluster is running, so start one on this machine
        ray.init(log_to_driver=False, **local_cluster(args))
    stop = threading.Event()
    # Replace Ray's signal handlers, which do not shut down the deployment.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    serve.start(http_options={"host": args.host, "port": args.port})
    for name in args.nodes:
        app = node(name, args.envs, workers=args.workers, tokens={token: "client"})
        serve.run(app, name=name, route_prefix=f"/{name}")
        print(f"node {name} at http://{args.host}:{args.port}/{name}", flush=True)
    print("ready", flush=True)
    stop.wait()
    serve.shutdown()
    ray.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

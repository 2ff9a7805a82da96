"""Environments behind Ray Serve: a node is one replica with a path of its own, so that sessions stay where they are.

    python recipes/serve_on_ray.py game:Wordle-v0-hard babyai: --nodes a b --port 8000

Then `palestra.make("http://HOST:8000/a/game:Wordle-v0-hard", token=...)`. A node that dies is started again by Ray; the
sessions it had are reported as lost, and the other nodes do not notice. Run it on a cluster that is up (`ray start`),
or let it start one on this machine.
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
    """The application of one node: a server of its own, with `workers` processes that Ray reserves processors for."""

    def build() -> Any:
        """Called in the replica, where the worker processes will be."""
        from palestra.server import create_app

        return create_app(envs, workers=workers, node=name, tokens=tokens, any_host=True)

    deployment: Any = serve.deployment(
        serve.ingress(build)(),
        name=name,
        num_replicas=1,  # a session lives in one process: more nodes, not more replicas of one
        max_ongoing_requests=4_096,  # the server has limits of its own, and says so
        ray_actor_options={"num_cpus": workers},
    )
    return deployment.bind()


def local(args: argparse.Namespace) -> dict[str, Any]:
    """A cluster of this machine alone."""
    wanted = args.workers * len(args.nodes) + 1
    return {"num_cpus": max(wanted, os.cpu_count() or 1), "include_dashboard": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("envs", nargs="+", metavar="ENV")
    parser.add_argument("--nodes", nargs="+", default=["a", "b"], metavar="NAME")
    parser.add_argument("--workers", type=int, default=1, help="processes of each node (1)")
    parser.add_argument("--address", default="auto", help="of the cluster; local: one of this machine's own (auto)")
    parser.add_argument("--host", default="127.0.0.1", help="where the proxies listen (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    token = os.environ.get("PALESTRA_TOKEN", "")
    if not token:
        parser.error("behind a proxy everybody looks local: set PALESTRA_TOKEN (openssl rand -hex 16)")

    try:
        ray.init(address=args.address, log_to_driver=False, **(local(args) if args.address == "local" else {}))
    except ConnectionError:  # there is none: one on this machine
        ray.init(log_to_driver=False, **local(args))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # after Ray has set its own, which would not clean up
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

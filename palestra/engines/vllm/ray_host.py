"""Run vLLM servers on the nodes of a Ray cluster: one actor per server, which reserves the server's GPUs and CPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.engines.vllm.process import VISIBLE, LocalProcess, free_port
from palestra.errors import EngineFailed
from palestra.optional import require

CALL_SECONDS = 60.0  # maximum time for a call to an actor


class ServerActor:
    """Ray actor that runs one server. The server ends with the actor."""

    def __init__(self) -> None:
        self._process: LocalProcess | None = None

    def address(self) -> str:
        """Return the IP address of the actor's node."""
        address: str = require("ray", extra="ray").util.get_node_ip_address()
        return address

    def free_port(self) -> int:
        return free_port(self.address())

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> int | None:
        """Start the server unless it is running, and return its process id."""
        variables = dict(environment)
        if variables.get(VISIBLE):  # Ray has assigned GPUs to this actor
            variables[VISIBLE] = os.environ.get(VISIBLE, "")
        if self._process is None:
            self._process = LocalProcess(command, variables, log)
        self._process.start()
        return self._process.pid

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()


class RayHost:
    """The node of a `ServerActor`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._address: str | None = None

    @property
    def address(self) -> str:
        if self._address is None:
            self._address = str(call(self._actor.address))
        return self._address

    def free_port(self) -> int:
        return int(call(self._actor.free_port))

    def process(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> RayProcess:
        return RayProcess(self._actor, command, environment, log)


class RayProcess:
    """A server that runs in a `ServerActor`. If the actor is lost, the server has ended and cannot be restarted."""

    def __init__(
        self, actor: Any, command: Sequence[str], environment: Mapping[str, str], log: Path | None = None
    ) -> None:
        self.log = log
        self.pid: int | None = None
        self._actor = actor
        self._command = list(command)
        self._environment = dict(environment)

    def start(self) -> None:
        log = None if self.log is None else self.log.absolute()
        self.pid = call(self._actor.start, self._command, self._environment, log)

    def exit_code(self) -> int | None:
        if self.pid is None:
            return None
        try:
            code: int | None = call(self._actor.exit_code)
        except EngineFailed:
            return -1
        return code

    def stop(self) -> None:
        self.pid = None
        try:
            call(self._actor.stop)
        except EngineFailed:
            return  # the server ended with its actor


def call(method: Any, *args: Any) -> Any:
    """Call a method of an actor and return its result; raise EngineFailed if the actor is lost."""
    ray: Any = require("ray", extra="ray")
    try:
        return ray.get(method.remote(*args), timeout=CALL_SECONDS)
    except ray.exceptions.RayTaskError as err:
        raise EngineFailed(f"the actor of a vLLM server raised an error: {err.cause}") from err
    except ray.exceptions.RayError as err:
        raise EngineFailed(f"the Ray actor of a vLLM server is lost: {' '.join(str(err).split())[:500]}") from err


def actor_name(group: Any, index: int) -> str:
    """Return the name of the actor for server number `index` in a run's placement group."""
    return f"palestra-vllm-server-{group.id.hex()}-{index}"


def ray_hosts(servers: int) -> list[RayHost]:
    """Return the hosts for the servers in this actor's placement group, which `palestra train --ray` has started."""
    ray: Any = require("ray", extra="ray")
    group = ray.util.get_current_placement_group()
    return [RayHost(ray.get_actor(actor_name(group, index))) for index in range(servers)]

"""Start Java processes and call their methods through Py4J.

Each process has one Py4J connection, which one thread uses at a time. Py4J's `GatewayClient` is not used for two
reasons: it resends a command if the reply was lost, so a step could be executed twice, and it frees Java objects during
Python's garbage collection. This module frees objects explicitly, and every failure raises either `ProcessLost` or
`JavaError`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from palestra.cache import cache_folder
from palestra.errors import MissingExtra
from palestra.optional import require

START_TIMEOUT = 180.0  # maximum seconds until a Java process prints its port
# ScienceWorld stores objects in hash sets. Their order depends on identity hashes, which differ between runs, so rooms
# would list their doors in a different order and animals would move differently. If all objects have the same hash,
# sets preserve the insertion order.
SAME_HASHES = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
NON_HEAP = ("-XX:MaxMetaspaceSize=160m", "-XX:ReservedCodeCacheSize=64m", "-Xss4m")


class ProcessLost(Exception):
    """Raised if the Java process has ended or does not respond."""


class JavaError(Exception):
    """Raised if Java code throws an exception, with the Java exception's message."""


class JavaConnection:
    """A Py4J connection. It is not thread-safe, so its owner must hold a lock.

    Every use of a Java object must be inside `errors()`.
    """

    def __init__(self, port: int, token: str, *, timeout: float) -> None:
        self._gateway: Any = require("py4j.java_gateway", extra="sciworld")
        self._protocol: Any = require("py4j.protocol", extra="sciworld")
        parameters = self._gateway.GatewayParameters(port=port, auth_token=token, read_timeout=timeout)
        properties = self._gateway.GatewayProperty(auto_field=False, pool=None, enable_memory_management=False)
        self._connection: Any = self._gateway.GatewayConnection(parameters, properties)
        self._connection.converters = None  # Py4J's objects read this attribute of a GatewayClient
        with self.errors():
            self._connection.start()
        # Calls are small packets that must be sent without delay.
        self._connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def java_class(self, name: str) -> Any:
        """Return the Java class `name`, which can be called to construct an object."""
        return self._gateway.JavaClass(name, self._connection)

    def scala_object(self, name: str) -> Any:
        """Return the instance of a Scala singleton object."""
        return getattr(self.java_class(f"{name}$"), "MODULE$")

    def free(self, obj: Any) -> None:
        """Let Java's garbage collector reclaim an object."""
        protocol = self._protocol
        command = f"{protocol.MEMORY_COMMAND_NAME}{protocol.MEMORY_DEL_SUBCOMMAND_NAME}{obj._get_object_id()}\n"
        self._connection.send_command(command + protocol.END_COMMAND_PART)

    def set_timeout(self, seconds: float) -> None:
        """Set the maximum duration of a call, after which the process is considered lost."""
        self._connection.socket.settimeout(seconds)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert Py4J's exceptions in this block to `ProcessLost` or `JavaError`."""
        try:
            yield
        except self._protocol.Py4JNetworkError as err:
            raise ProcessLost(f"{err.args[0]}: {err.cause}" if err.cause else str(err.args[0])) from err
        except self._protocol.Py4JJavaError as err:
            message = self._text(err.java_exception)
            raise JavaError(message) from err
        except self._protocol.Py4JError as err:
            raise JavaError(str(err)) from err

    def _text(self, java_exception: Any) -> str:
        try:
            message = str(java_exception.toString())
            self.free(java_exception)
        except self._protocol.Py4JError as err:
            raise ProcessLost(f"the process ended while it reported an exception: {err}") from err
        return message

    def close(self) -> None:
        self._connection.close()

    def fileno(self) -> int:
        return int(self._connection.socket.fileno())


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def java_command() -> tuple[str, str]:
    """Return the path of the Java executable and the class path, or raise MissingExtra if something is missing."""
    from shutil import which

    constants: Any = require("scienceworld.constants", extra="sciworld")
    py4j: Any = require("py4j.java_gateway", extra="sciworld")
    java = which("java")
    if java is None:
        raise MissingExtra("ScienceWorld requires Java 11 or newer; run: apt-get install default-jre-headless")
    return java, f"{py4j.find_jar_path()}:{constants.JAR_PATH}"


def start_process(heap_mb: int) -> subprocess.Popen[bytes]:
    """Start a Java process that serves Py4J and prints its port and token."""
    java, path = java_command()
    memory = (f"-Xmx{heap_mb}m", "-Xms64m", *NON_HEAP, "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
    # The process ends when its standard input is closed, so it does not outlive a parent process that is killed.
    server = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
    return subprocess.Popen(
        [java, *memory, *SAME_HASHES, "-classpath", path, *server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_working_directory(),
        start_new_session=True,  # Ctrl-C interrupts only the Python process, which then ends the Java process
    )


def read_address(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Read the port and the authentication token, which the process prints first."""
    output: Any = process.stdout  # a pipe
    timer = threading.Timer(START_TIMEOUT, process.kill)
    timer.start()
    try:
        port, token = output.readline().strip(), output.readline().strip()
    finally:
        timer.cancel()
    if not (port.isdigit() and token):
        raise ProcessLost(f"it printed {port!r} instead of a port; check that `java -version` is 11 or newer")
    return int(port), token.decode()


def _working_directory() -> Path:
    """Return a writable directory, because ScienceWorld writes a list of its classes to its working directory."""
    folder = cache_folder() / "sciworld"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="palestra-sciworld-"))

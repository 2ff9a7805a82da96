"""A Java process -> worlds of ScienceWorld, as many as fit in its memory, each as if it were alone.

The engine keeps its chance, its counter of things and its simplifications in global variables, so that two episodes in
one process disturb each other. Here every world has its own, which are put in place before the world is touched. So one
process, started once and warm, serves all episodes; calls take turns by the engine's lock.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from palestra.cache import cache_folder
from palestra.envs.sciworld.wire import Lost, Ref, Thrown, Wire
from palestra.errors import EnvFailed, MissingExtra
from palestra.optional import require

START_TIMEOUT = 60.0  # seconds until a Java process must have told its port
CALL_TIMEOUT = 240.0  # seconds for a call; steps take 20 ms, the longest gold paths up to 40 s on a busy machine
MOST_WORLDS = 256  # kept in a process, half a megabyte each; the least recently used is dropped, and replayed if needed
MOST_SPARE = 4
# Things lie in hash sets, by hashes that differ from run to run, so rooms list their doors in another order every time
# and animals wander elsewhere. With one hash for everything, sets keep the order in which they were filled.
SAME_HASHES = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
NON_HEAP = ("-XX:MaxMetaspaceSize=160m", "-XX:ReservedCodeCacheSize=64m", "-Xss4m")


class Key(NamedTuple):
    """What a world is made of."""

    task: str
    variation: int
    simplifications: str


class Seen(NamedTuple):
    """What a step led to."""

    text: str
    score: float  # 1: done; below 0: failed
    completed: bool


class Opening(NamedTuple):
    """What is told at the start."""

    task: str
    look: str
    forms: tuple[str, ...]  # "open OBJ", "pour OBJ in OBJ" ...


class Gone(Exception):
    """The world was dropped, or its process died: build it again."""


@dataclass(slots=True, eq=False)
class Live:
    """A world inside a Java process, with what the engine keeps in global variables."""

    interface: Ref
    chance: Ref  # java.util.Random
    count: int = 0  # things made so far
    simplifications: str = ""
    gone: bool = field(default=False)


class Engine:
    """One Java process. Every method may be called from any thread."""

    def __init__(self, *, heap_mb: int) -> None:
        self.lock = threading.RLock()
        self.trash: deque[Live] = deque()  # worlds whose owner was collected; a finaliser may take no lock
        self.worlds: OrderedDict[int, Live] = OrderedDict()  # by id, the least recently used first
        self.dead = False
        self._current: Live | None = None
        self._spare: list[Ref] = []  # making one takes as long as loading a world into it
        self._process = _started(heap_mb)
        try:
            port, token = _greeting(self._process)
            self.wire = Wire(port, token, timeout=CALL_TIMEOUT)
            self._bind()
        except (Lost, Thrown) as err:
            self.kill()
            raise EnvFailed(f"ScienceWorld's Java process did not start: {err}") from err

    def _bind(self) -> None:
        """Silence the engine, which prints every step, and find its global variables."""
        wire = self.wire
        nowhere = wire.ref("java.io.OutputStream", "nullOutputStream")
        wire.call("java.lang.System", "setOut", wire.new("java.io.PrintStream", nowhere))
        self._random = _module(wire, "scala.util.Random")
        self._chance = wire.ref(wire.ref("java.lang.Class", "forName", "scala.util.Random"), "getDeclaredField", "self")
        wire.call(self._chance, "setAccessible", True)
        self._counter = _module(wire, "util.UniqueIdentifier")
        self._simplifier = _module(wire, "main.scala.scienceworld.runtime.SimplifierProcessor")
        self._paths = wire.ref(_module(wire, "scienceworld.goldagent.PathFinder"), "precomputedExhaustivePaths")
        self._scratch = wire.new("java.util.Random", 0)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self.dead and self._process.poll() is None

    # Worlds

    def load(self, key: Key) -> Live:
        """A new world, before its first step."""
        with self._guarded() as wire:
            while len(self.worlds) >= MOST_WORLDS:
                self._drop(next(iter(self.worlds.values())))
            interface = self._spare.pop() if self._spare else wire.new("scienceworld.runtime.pythonapi.PythonInterface")
            live = Live(interface, wire.new("java.util.Random", 0))
            self.worlds[id(live)] = live
            self._fill(live, key, gold=False)
            return live

    def _fill(self, live: Live, key: Key, *, gold: bool) -> None:
        self._enter(live)
        error = self.wire.text(live.interface, "load", key.task, key.variation, key.simplifications, gold)
        if error:
            raise EnvFailed(f"ScienceWorld cannot load {key}: {error}")
        self.wire.call(live.interface, "score_$eq", 0.0)  # loading leaves these as the last episode had them
        self.wire.call(live.interface, "isComplete_$eq", False)
        self.wire.call(live.interface, "taskMaker_$eq", None)  # all other tasks, which are most of what a world holds
        used = self.wire.text(self._simplifier, "getSimplificationsUsed")
        live.simplifications = used.replace(" ", "")

    def step(self, live: Live, action: str) -> Seen:
        """Take an action. `Thrown`: the engine broke on it, and the world is unusable."""
        with self._guarded(live) as wire:
            text = wire.text(live.interface, "step", action)
            score = wire.call(live.interface, "getScore")
            completed = wire.call(live.interface, "getCompleted")
            if self._broken(live):
                raise Thrown(text)
            return Seen(text, float(score), bool(completed))  # type: ignore[arg-type]  # a double

    def _broken(self, live: Live) -> bool:
        """Whether the engine caught an exception of its own, after which it only repeats the message."""
        option = self.wire.ref(live.interface, "agentInterface")
        inner = self.wire.ref(option, "get")
        broken = self.wire.call(inner, "isInErrorState")
        self.wire.free(inner)
        self.wire.free(option)
        return bool(broken)

    def opening(self, live: Live) -> Opening:
        with self._guarded(live) as wire, self._aside():
            task = wire.text(live.interface, "getTaskDescription")
            return Opening(task, wire.text(live.interface, "freeActionLook"), self._strings(live, "getPossibleActions"))

    def asked(self, live: Live, method: str) -> str:
        """The answer of a method that changes nothing."""
        with self._guarded(live) as wire, self._aside():
            return wire.text(live.interface, method)

    def listed(self, live: Live, method: str) -> tuple[str, ...]:
        """The strings that a method lists, which changes nothing."""
        with self._guarded(live), self._aside():
            return self._strings(live, method)

    def _strings(self, live: Live, method: str) -> tuple[str, ...]:
        found = self.wire.ref(live.interface, method)
        joined = self.wire.text("java.lang.String", "join", "\n", found)
        self.wire.free(found)
        return tuple(joined.split("\n")) if joined else ()

    def gold(self, key: Key) -> tuple[str, ...]:
        """The engine's own solution, a list of actions."""
        live = self.load(key)
        with self._guarded(live) as wire:
            wire.call(self._paths, "clear")  # kept paths depend on the episode that first asked for them
            self._fill(live, key, gold=True)
            path = self._strings(live, "getGoldActionSequence")
            self._drop(live)
            return path

    def drop(self, live: Live) -> None:
        """Free a world."""
        with self.lock:
            if self.alive and not live.gone:
                with self._guarded():
                    self._drop(live)

    def _drop(self, live: Live) -> None:
        live.gone = True
        if self.worlds.pop(id(live), None) is not None:
            if self._current is live:
                self._current = None
            self.wire.free(live.chance)
            if len(self._spare) < MOST_SPARE:
                self._spare.append(live.interface)
            else:
                self.wire.free(live.interface)

    # Taking turns

    @contextmanager
    def _guarded(self, live: Live | None = None) -> Iterator[Wire]:
        """The wire, with `live` in place; a process that is lost is ended and told as an infrastructure error."""
        with self.lock:
            if self.dead or (live is not None and live.gone):
                raise Gone
            try:
                while self.trash:
                    self._drop(self.trash.popleft())
                if live is not None:
                    self._enter(live)
                yield self.wire
            except Lost as err:
                code = self.kill()
                raise EnvFailed(
                    f"the Java process of ScienceWorld is gone (exit status {code}; {err}). Another is started when it "
                    "is needed; the step was not taken and may be repeated."
                ) from err

    def _enter(self, live: Live) -> None:
        self.worlds.move_to_end(id(live))
        before = self._current
        if before is live:
            return
        if before is not None:
            before.count = int(self.wire.call(self._counter, "count"))  # type: ignore[arg-type]  # a long
        self._current = None  # a failure in between leaves nobody's
        self.wire.call(self._chance, "set", self._random, live.chance)
        self.wire.call(self._counter, "count_$eq", live.count)
        self.wire.free(self.wire.ref(self._simplifier, "parseSimplificationStr", live.simplifications))
        self._current = live

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Within, chance is not the world's: asking changes nothing, and gets the same answer every time."""
        live = self._current
        self.wire.call(self._scratch, "setSeed", 0)
        self.wire.call(self._chance, "set", self._random, self._scratch)
        yield
        if live is not None:
            self.wire.call(self._chance, "set", self._random, live.chance)

    def kill(self) -> int | None:
        """End the process now; its exit status."""
        self.dead = True
        self.worlds.clear()
        process = self._process
        code = process.poll()
        process.kill()
        process.wait()
        wire = getattr(self, "wire", None)
        if wire is not None:
            wire.close()  # after the process: a thread that reads from it gets the end first, and lets go of the stream
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def disown(self) -> None:
        """In a forked child: let go of the parent's process, so that it notices when the parent ends."""
        self.dead = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for end in (self._process.stdin, self._process.stdout, self.wire):
            if end is not None:
                os.dup2(nowhere, end.fileno())  # closing could wait for a lock that a thread of the parent held
        os.close(nowhere)
        self._process.returncode = 0  # it is not this process's to wait for


@cache
def _command() -> tuple[str, str]:
    """Java, and the class path."""
    from shutil import which

    constants: Any = require("scienceworld.constants", extra="sciworld")
    py4j: Any = require("py4j.java_gateway", extra="sciworld")
    java = which("java")
    if java is None:
        raise MissingExtra("ScienceWorld runs on Java 11 or newer. Get it with: apt-get install default-jre-headless")
    return java, f"{py4j.find_jar_path()}:{constants.JAR_PATH}"


def check_installed() -> None:
    """MissingExtra where the package or Java is not there."""
    _command()


def _started(heap_mb: int) -> subprocess.Popen[bytes]:
    java, path = _command()
    memory = (f"-Xmx{heap_mb}m", "-Xms64m", *NON_HEAP, "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
    # With its standard input at the end, the process ends too: that is what becomes of it when its parent is killed.
    server = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
    return subprocess.Popen(
        [java, *memory, *SAME_HASHES, "-classpath", path, *server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_folder(),
        start_new_session=True,  # Ctrl-C is for the trainer, which then closes this
    )


def _folder() -> Path:
    """Where the engine may write: it leaves a list of its classes in the folder it is started in."""
    folder = cache_folder() / "sciworld"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="palestra-sciworld-"))


def _greeting(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The port and the token that the process prints first."""
    said: Any = process.stdout  # a pipe
    timer = threading.Timer(START_TIMEOUT, process.kill)
    timer.start()
    try:
        port, token = said.readline().strip(), said.readline().strip()
    finally:
        timer.cancel()
    if not (port.isdigit() and token):
        raise Lost(f"it said {port!r} instead of a port; is `java -version` 11 or newer?")
    return int(port), token.decode()


def _module(wire: Wire, name: str) -> Ref:
    """A Scala object."""
    owner = wire.ref("java.lang.Class", "forName", f"{name}$")
    return wire.ref(wire.ref(owner, "getField", "MODULE$"), "get", None)

"""Worlds for the envs of this process: Java processes shared and replaced, the next episode prepared in the background.

A `World` is what it is made of and the actions taken so far. That is enough to build it again, exactly: for a fork, in
another process, after it was dropped to save memory, or after its Java process died. Building waits until it is needed.
What the engine cannot read leaves no trace in it, no time passes, so that need not be said again.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from palestra.envs.sciworld.engine import Engine, Gone, Key, Live, Opening, Seen
from palestra.envs.sciworld.solution import BURNS, shortened, unburnt
from palestra.envs.sciworld.wire import Thrown
from palestra.errors import BadValue, EnvFailed, InfrastructureError

HEAP_MB = 512
KEPT_READY = 64  # worlds prepared and not yet asked for
KEPT_OPENINGS = 1024  # first observations, some 2 kB each
KEPT_PATHS = 1024
UNREAD = "No known action matches that input."
AMBIGUOUS = "Ambiguous request"
T = TypeVar("T")
_log = logging.getLogger(__name__)


class World:
    """An episode's world; `step` builds it where it is not there (any more)."""

    def __init__(
        self, key: Key, actions: tuple[str, ...] = (), lasting: tuple[str, ...] = (), *, asked: bool = False
    ) -> None:
        self.key = key
        self.actions = list(actions)
        self._lasting = list(lasting)  # those that were read
        self._asked = asked  # the engine waits for a number, and goes on differently when it gets something else
        self._lock = threading.RLock()  # the thread that prepares and the player may want to build at once
        self._engine: Engine | None = None
        self._live: Live | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> World:
        return World(self.key, tuple(self.actions), tuple(self._lasting), asked=self._asked)

    def __reduce__(self) -> tuple[Any, ...]:
        return _world, (self.key, tuple(self.actions), tuple(self._lasting), self._asked)

    def begin_again(self) -> bool:
        """Whether the world is as new; then what was said to it is forgotten."""
        with self._lock:
            if self._lasting:
                return False
            self.actions.clear()
            return True

    def step(self, action: str) -> Seen:
        """Take an action; `Thrown` where the engine breaks on it, and the world is as it was before."""
        with self._lock:
            try:
                seen = self._with_live(lambda engine, live: engine.step(live, action))
            except Thrown:
                self.release()  # to be built again without that action
                raise
            self.actions.append(action)
            if self._asked or not seen.text.startswith(UNREAD):
                self._lasting.append(action)
            self._asked = seen.text.startswith(AMBIGUOUS)
            return seen

    def opening(self) -> Opening:
        """What is told at the start; known without building where an episode began like this before."""
        known = pool.openings.get(self.key)
        if known is None:
            known = self._with_live(lambda engine, live: engine.opening(live))
            pool.remember(pool.openings, self.key, known, KEPT_OPENINGS)
        return known

    def asked(self, method: str) -> str:
        return self._with_live(lambda engine, live: engine.asked(live, method))

    def listed(self, method: str) -> tuple[str, ...]:
        return self._with_live(lambda engine, live: engine.listed(live, method))

    def solved_by(self, actions: Sequence[str]) -> bool:
        """Whether the actions lead from here to the full score; then the world is let go."""
        try:
            return any(seen.completed and seen.score >= 1 for seen in map(self.step, actions))
        except Thrown:
            return False
        finally:
            self.release()

    def build(self) -> None:
        """Have it ready now."""
        with self._lock:
            self._built()

    @property
    def built(self) -> bool:
        live, engine = self._live, self._engine
        return live is not None and not live.gone and engine is not None and engine.alive

    def release(self) -> None:
        """Free what it holds; it can still be built again."""
        with self._lock:
            live, engine = self._live, self._engine
            self._live = self._engine = None
            if self._finalizer is not None:
                self._finalizer.detach()
                self._finalizer = None
            if live is not None and engine is not None and not engine.dead:
                with suppress(InfrastructureError, Gone):  # a process that died holds nothing any more
                    engine.drop(live)

    def _with_live(self, use: Callable[[Engine, Live], T]) -> T:
        with self._lock:
            for _ in range(3):
                try:
                    return use(*self._built())
                except Gone:
                    self._live = self._engine = None
            raise EnvFailed("ScienceWorld's worlds are dropped faster than they are used; open fewer at once")

    def _built(self) -> tuple[Engine, Live]:
        engine, live = self._engine, self._live
        if engine is not None and live is not None and not engine.dead and not live.gone:
            return engine, live
        engine = pool.engine()
        live = engine.load(self.key)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, engine.trash.append, live)
        self._finalizer.atexit = False
        for action in self._lasting:
            engine.step(live, action)
        self._engine, self._live = engine, live
        return engine, live


def _world(key: Key, actions: tuple[str, ...], lasting: tuple[str, ...], asked: bool) -> World:
    return World(key, actions, lasting, asked=asked)


class Pool:
    """The Java processes of this one, what is prepared, and what is known already."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []
        self.openings: OrderedDict[Key, Opening] = OrderedDict()
        self._paths: OrderedDict[Key, tuple[str, ...]] = OrderedDict()
        self._ready: OrderedDict[Key, World] = OrderedDict()
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._wanted: SimpleQueue[weakref.ref[World]] = SimpleQueue()
        self._preparer: threading.Thread | None = None
        self.started = 0  # Java processes so far

    def engine(self) -> Engine:
        """The process with the fewest worlds; started here, where there are too few, or in place of a dead one."""
        with self._starting:
            for engine in self.engines:
                if not engine.alive:
                    _log.warning("ScienceWorld's Java process died (exit status %s); it is replaced", engine.kill())
            self.engines = [engine for engine in self.engines if engine.alive]
            if len(self.engines) < _setting("PALESTRA_SCIWORLD_JVMS", 1):
                self.engines.append(Engine(heap_mb=_setting("PALESTRA_SCIWORLD_HEAP_MB", HEAP_MB)))
                self.started += 1
            return min(self.engines, key=lambda engine: len(engine.worlds))

    def world(self, key: Key) -> World:
        """A world before its first step: one that was prepared, or a new one, which is built in the background at once
        where its first observation is known, as nobody waits for it before the first action."""
        with self._lock:
            ready = self._ready.pop(key, None)
        if ready is not None:
            return ready
        world = World(key)
        if key in self.openings:
            self._enqueue(world)
        return world

    def prepare(self, key: Key) -> None:
        """Build a world in the background, for whoever asks for it next."""
        with self._lock:
            if key in self._ready:
                self._ready.move_to_end(key)
                return
            world = self._ready[key] = World(key)
            surplus = self._ready.popitem(last=False)[1] if len(self._ready) > KEPT_READY else None
        self._enqueue(world)
        if surplus is not None:
            surplus.release()

    def is_ready(self, key: Key) -> bool:
        """Whether a prepared world waits to be taken."""
        with self._lock:
            world = self._ready.get(key)
        return world is not None and world.built and key in self.openings

    def gold(self, key: Key) -> tuple[str, ...]:
        """The engine's own solution, made playable."""
        path = self._paths.get(key)
        if path is None:
            try:
                path = shortened(self.engine().gold(key))
            except (Gone, Thrown) as err:
                raise EnvFailed(f"ScienceWorld made no gold path for {key}: {err}") from err
            if key.task in BURNS:
                path = unburnt(path, lambda actions: World(key).solved_by(actions))
            self.remember(self._paths, key, path, KEPT_PATHS)
        return path

    def remember(self, known: OrderedDict[Key, T], key: Key, value: T, most: int) -> None:
        with self._lock:
            known[key] = value
            if len(known) > most:
                known.popitem(last=False)

    def _enqueue(self, world: World) -> None:
        with self._lock:
            if self._preparer is None:
                self._preparer = threading.Thread(target=self._prepare_all, name="sciworld-preparer", daemon=True)
                self._preparer.start()
        self._wanted.put(weakref.ref(world))

    def _prepare_all(self) -> None:
        while True:
            world = self._wanted.get()()
            if world is None:
                continue  # nobody wants it any more
            with suppress(InfrastructureError, Gone, Thrown):  # whoever needs this world builds it, and is told
                world.build()
                world.opening()
            del world  # waiting must not keep it

    def close(self) -> None:
        """End the Java processes; the next episode starts another."""
        with self._lock:
            self._ready.clear()
        with self._starting:
            engines, self.engines = self.engines, []
        for engine in engines:
            engine.kill()

    def disown(self) -> None:
        """In a forked child, whose parent has the processes and the thread."""
        for engine in self.engines:
            engine.disown()
        self.__init__()  # type: ignore[misc]  # locks too: a thread of the parent may have held them


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdigit() or int(text) < 1:
        raise BadValue(f"{name} is a whole number from 1 up, got {text!r}")
    return int(text)


pool = Pool()
atexit.register(pool.close)
os.register_at_fork(after_in_child=pool.disown)

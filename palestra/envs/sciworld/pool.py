"""Share Java processes between all envs in this Python process, and prepare the next episode in the background.

A `Simulation` stores a task key and the actions taken so far, from which its state can be rebuilt exactly. This is done
for a fork, in another process, after the state was dropped to save memory, or after its Java process has ended. The
state is built when it is first needed. Commands that ScienceWorld cannot parse do not change the state and are not
replayed.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from palestra.envs.sciworld.java import JavaError
from palestra.envs.sciworld.simulator import Instance, InstanceGone, JavaSimulator, StepResult, TaskIntro, TaskKey
from palestra.envs.sciworld.solution import BURNS, shortened, unburnt
from palestra.errors import BadValue, EnvFailed, InfrastructureError
from palestra.machine import own_cores

HEAP_MB = 512
MAX_PROCESSES = 4  # default limit; a machine with fewer than 16 cores has one process per 4 cores
MAX_PREPARED = 64  # maximum number of prepared simulations that are not in use yet
MAX_INTROS = 1024  # maximum number of cached introductions of about 2 kB each
MAX_GOLD_PATHS = 1024
UNPARSED = "No known action matches that input."
AMBIGUOUS = "Ambiguous request"
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Simulation:
    """One episode of a task. It is loaded into a Java process, or rebuilt there, when it is used."""

    def __init__(
        self,
        key: TaskKey,
        actions: tuple[str, ...] = (),
        parsed: tuple[str, ...] = (),
        *,
        awaiting_choice: bool = False,
    ) -> None:
        self.key = key
        self.actions = list(actions)
        self._parsed = list(parsed)  # the actions that ScienceWorld could parse
        # While ScienceWorld waits for a number, any other reply also changes its state.
        self._awaiting_choice = awaiting_choice
        self._lock = threading.RLock()  # the background thread and the env may build it at the same time
        self._simulator: JavaSimulator | None = None
        self._instance: Instance | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Simulation:
        return Simulation(self.key, tuple(self.actions), tuple(self._parsed), awaiting_choice=self._awaiting_choice)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.key, tuple(self.actions), tuple(self._parsed), self._awaiting_choice)

    def restart(self) -> bool:
        """Return whether the simulation is in its initial state, and clear its list of actions if so."""
        with self._lock:
            if self._parsed:
                return False
            self.actions.clear()
            return True

    def step(self, action: str) -> StepResult:
        """Take an action. If `JavaError` is raised, the state is the same as before the action."""
        with self._lock:
            try:
                result = self._with_instance(lambda simulator, instance: simulator.step(instance, action))
            except JavaError:
                self.release()  # the next use rebuilds the simulation without this action
                raise
            self.actions.append(action)
            if self._awaiting_choice or not result.text.startswith(UNPARSED):
                self._parsed.append(action)
            self._awaiting_choice = result.text.startswith(AMBIGUOUS)
            return result

    def intro(self) -> TaskIntro:
        """Return the task's introduction. It is cached by key, so the simulation is built only if the key is new."""
        cached = pool.intros.get(self.key)
        if cached is None:
            cached = self._with_instance(lambda simulator, instance: simulator.intro(instance))
            pool.remember(pool.intros, self.key, cached, MAX_INTROS)
        return cached

    def query(self, method: str) -> str:
        return self._with_instance(lambda simulator, instance: simulator.query(instance, method))

    def query_list(self, method: str) -> tuple[str, ...]:
        return self._with_instance(lambda simulator, instance: simulator.query_list(instance, method))

    def solved_by(self, actions: Sequence[str]) -> bool:
        """Execute the actions, release the simulation, and return whether the full score was reached."""
        try:
            return any(result.completed and result.score >= 1 for result in map(self.step, actions))
        except JavaError:
            return False
        finally:
            self.release()

    def build(self) -> None:
        """Load the simulation now."""
        with self._lock:
            self._built()

    @property
    def built(self) -> bool:
        instance, simulator = self._instance, self._simulator
        return instance is not None and not instance.gone and simulator is not None and simulator.alive

    def release(self) -> None:
        """Free the Java instance. The next use builds it again."""
        with self._lock:
            instance, simulator = self._instance, self._simulator
            self._instance = self._simulator = None
            if self._finalizer is not None:
                self._finalizer.detach()
                self._finalizer = None
            if instance is not None and simulator is not None and not simulator.dead:
                with suppress(InfrastructureError, InstanceGone):  # a process that has ended needs no cleanup
                    simulator.drop(instance)

    def _with_instance(self, use: Callable[[JavaSimulator, Instance], T]) -> T:
        with self._lock:
            for _ in range(3):
                try:
                    return use(*self._built())
                except InstanceGone:
                    self._instance = self._simulator = None
            raise EnvFailed(
                "ScienceWorld instances are dropped before they can be used; run fewer envs concurrently or set "
                "PALESTRA_SCIWORLD_JVMS to start more Java processes"
            )

    def _built(self) -> tuple[JavaSimulator, Instance]:
        simulator, instance = self._simulator, self._instance
        if simulator is not None and instance is not None and not simulator.dead and not instance.gone:
            return simulator, instance
        with pool.loading() as simulator:
            instance = simulator.load(self.key)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, simulator.trash.append, instance)
        self._finalizer.atexit = False
        for action in self._parsed:
            simulator.step(instance, action)
        self._simulator, self._instance = simulator, instance
        return simulator, instance


def _restore(key: TaskKey, actions: tuple[str, ...], parsed: tuple[str, ...], awaiting_choice: bool) -> Simulation:
    return Simulation(key, actions, parsed, awaiting_choice=awaiting_choice)


class SimulatorPool:
    """Java processes started by this Python process, prepared simulations, and cached texts and solutions."""

    def __init__(self) -> None:
        self.simulators: list[JavaSimulator] = []  # processes for episodes
        self.solvers: list[JavaSimulator] = []  # processes for solutions, if there is more than one for episodes
        self.intros: OrderedDict[TaskKey, TaskIntro] = OrderedDict()
        self._paths: OrderedDict[TaskKey, tuple[str, ...]] = OrderedDict()
        self._ready: OrderedDict[TaskKey, Simulation] = OrderedDict()
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._queue: SimpleQueue[weakref.ref[Simulation]] = SimpleQueue()
        self._preparer: threading.Thread | None = None
        self.started = 0  # number of Java processes started so far

    def simulator(self) -> JavaSimulator:
        """Return the process for episodes that has the fewest instances."""
        with self._starting:
            return self._chosen(self.simulators)

    @contextmanager
    def loading(self, *, solving: bool = False) -> Iterator[JavaSimulator]:
        """Choose a process that loads a task within this context, so that other threads choose another one.

        With `solving`, the process also computes the task's solution. This takes seconds, in which the process cannot
        do anything else, so episodes do not use it if several processes are allowed.
        """
        with self._starting:
            simulator = self._chosen(self.solvers if solving and max_processes() > 1 else self.simulators)
            simulator.loading += 1
        try:
            yield simulator
        finally:
            with self._starting:
                simulator.loading -= 1

    def _chosen(self, processes: list[JavaSimulator]) -> JavaSimulator:
        """Return the process with the fewest instances and loads. Ended processes are replaced.

        If all processes are loading tasks, another one is started, up to the limit.
        """
        for simulator in processes:
            if not simulator.alive:
                _log.warning("ScienceWorld's Java process ended (exit status %s); replacing it", simulator.kill())
        processes[:] = [simulator for simulator in processes if simulator.alive]
        if len(processes) < max_processes() and all(simulator.loading for simulator in processes):
            processes.append(JavaSimulator(heap_mb=_setting("PALESTRA_SCIWORLD_HEAP_MB", HEAP_MB)))
            self.started += 1
        return min(processes, key=lambda simulator: len(simulator.instances) + simulator.loading)

    def simulation(self, key: TaskKey) -> Simulation:
        """Return a prepared simulation or a new one, in its initial state.

        If the first observation of a new simulation is cached, the simulation is built in the background while the
        agent chooses its first action.
        """
        with self._lock:
            ready = self._ready.pop(key, None)
        if ready is not None:
            return ready
        simulation = Simulation(key)
        if key in self.intros:
            self._enqueue(simulation)
        return simulation

    def prepare(self, key: TaskKey) -> None:
        """Build a simulation in the background for the next request with this key."""
        with self._lock:
            if key in self._ready:
                self._ready.move_to_end(key)
                return
            simulation = self._ready[key] = Simulation(key)
            evicted = self._ready.popitem(last=False)[1] if len(self._ready) > MAX_PREPARED else None
        self._enqueue(simulation)
        if evicted is not None:
            evicted.release()

    def is_ready(self, key: TaskKey) -> bool:
        """Return whether a prepared simulation for this key is built and not in use yet."""
        with self._lock:
            simulation = self._ready.get(key)
        return simulation is not None and simulation.built and key in self.intros

    def gold(self, key: TaskKey) -> tuple[str, ...]:
        """Return ScienceWorld's own solution, shortened to fit the turn budget."""
        path = self._paths.get(key)
        if path is None:
            try:
                with self.loading(solving=True) as simulator:
                    path = shortened(simulator.gold(key))
            except (InstanceGone, JavaError) as err:
                raise EnvFailed(f"ScienceWorld generated no gold path for {key}: {err}") from err
            if key.task in BURNS:
                path = unburnt(path, lambda actions: Simulation(key).solved_by(actions))
            self.remember(self._paths, key, path, MAX_GOLD_PATHS)
        return path

    def remember(self, cached: OrderedDict[TaskKey, T], key: TaskKey, value: T, most: int) -> None:
        with self._lock:
            cached[key] = value
            if len(cached) > most:
                cached.popitem(last=False)

    def _enqueue(self, simulation: Simulation) -> None:
        with self._lock:
            if self._preparer is None:
                self._preparer = threading.Thread(target=self._prepare_all, name="sciworld-preparer", daemon=True)
                self._preparer.start()
        self._queue.put(weakref.ref(simulation))

    def _prepare_all(self) -> None:
        while True:
            simulation = self._queue.get()()
            if simulation is None:
                continue  # the simulation is no longer needed
            # The env that uses the simulation will build it again and raise the error.
            with suppress(InfrastructureError, InstanceGone, JavaError):
                simulation.build()
                simulation.intro()
            del simulation  # release the simulation while waiting for the next one

    def close(self) -> None:
        """End the Java processes. The next episode starts a new process."""
        with self._lock:
            self._ready.clear()
        with self._starting:
            simulators = self.simulators + self.solvers
            self.simulators, self.solvers = [], []
        for simulator in simulators:
            simulator.kill()

    def disown(self) -> None:
        """Release the parent's processes and locks in a forked child process."""
        for simulator in self.simulators + self.solvers:
            simulator.disown()
        # Locks are replaced as well, because a thread of the parent may have held them during the fork.
        self.__init__()  # type: ignore[misc]


def max_processes() -> int:
    """Return the maximum number of Java processes for episodes, and of those for solutions."""
    return _setting("PALESTRA_SCIWORLD_JVMS", max(1, min(MAX_PROCESSES, own_cores() // 4)))


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdigit() or int(text) < 1:
        raise BadValue(f"{name} must be an integer of at least 1, got {text!r}")
    return int(text)


pool = SimulatorPool()
atexit.register(pool.close)
os.register_at_fork(after_in_child=pool.disown)

"""Run many ScienceWorld tasks in one Java process without interference.

ScienceWorld stores its random generator, its object counter and its simplifications in global variables, so two
episodes in one process would affect each other. In this module, every instance has its own copies of these variables,
which are swapped in before the instance is used. One process can therefore run all episodes. A lock permits only one
call at a time.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from palestra.envs.sciworld.java import (
    JavaConnection,
    JavaError,
    ProcessLost,
    encodable,
    read_address,
    start_process,
)
from palestra.errors import EnvFailed

CALL_TIMEOUT = 240.0  # seconds; a step takes 20 ms, but computing a long solution takes up to 40 s on a busy machine
MAX_INSTANCES = 256  # maximum number of instances per process, 0.5 MB each; the least recently used are dropped
MAX_SPARE_INTERFACES = 4


class TaskKey(NamedTuple):
    """The values that determine the initial state of a task."""

    task: str
    variation: int
    simplifications: str


class StepResult(NamedTuple):
    """Observation, score and completion after a step."""

    text: str
    score: float  # 1 if the task is completed, negative if it has failed
    completed: bool


class TaskIntro(NamedTuple):
    """Task description, first observation and command forms."""

    task: str
    look: str
    forms: tuple[str, ...]  # command forms such as "open OBJ" and "pour OBJ in OBJ"


class InstanceGone(Exception):
    """Raised if an instance was dropped or its process has ended, so that it must be loaded again."""


@dataclass(slots=True, eq=False)
class Instance:
    """A task loaded in a Java process, with its own copies of ScienceWorld's global variables."""

    interface: Any  # scienceworld.runtime.pythonapi.PythonInterface
    random: Any  # java.util.Random
    object_count: int = 0
    simplifications: str = ""
    gone: bool = field(default=False)


class JavaSimulator:
    """One Java process. All methods are thread-safe."""

    def __init__(self, *, heap_mb: int) -> None:
        self.lock = threading.RLock()
        # Instances whose owner was garbage-collected. Finalizers must not acquire locks, so they only append here.
        self.trash: deque[Instance] = deque()
        self.instances: OrderedDict[int, Instance] = OrderedDict()  # instances by id, least recently used first
        self.dead = False
        self.loading = 0  # number of threads that load a task or wait to do so; protected by the pool's lock
        self._current: Instance | None = None
        self._spare: list[Any] = []  # interfaces are reused, because constructing one takes as long as loading a task
        self._process = start_process(heap_mb)
        try:
            port, token = read_address(self._process)
            self.connection = JavaConnection(port, token, timeout=CALL_TIMEOUT)
            with self.connection.errors():
                self._bind()
        except (ProcessLost, JavaError) as err:
            self.kill()
            raise EnvFailed(f"ScienceWorld's Java process did not start: {err}") from err

    def _bind(self) -> None:
        """Disable ScienceWorld's output, which reports every step, and look up its global variables."""
        java = self.connection.java_class
        null_output = java("java.io.OutputStream").nullOutputStream()
        java("java.lang.System").setOut(java("java.io.PrintStream")(null_output))
        self._interface_class = java("scienceworld.runtime.pythonapi.PythonInterface")
        self._random_class = java("java.util.Random")
        self._join = java("java.lang.String").join
        self._random = self.connection.scala_object("scala.util.Random")
        self._random_field = java("java.lang.Class").forName("scala.util.Random").getDeclaredField("self")
        self._random_field.setAccessible(True)
        self._counter = self.connection.scala_object("util.UniqueIdentifier")
        self._simplifier = self.connection.scala_object("main.scala.scienceworld.runtime.SimplifierProcessor")
        self._paths = self.connection.scala_object("scienceworld.goldagent.PathFinder").precomputedExhaustivePaths()
        self._scratch_random = self._random_class(0)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self.dead and self._process.poll() is None

    # Instances

    def load(self, key: TaskKey) -> Instance:
        """Load a task and return an instance in its initial state."""
        with self._calling():
            instance = self._new_instance()
            self._fill(instance, key)
            self._forget_tasks(instance)
            return instance

    def _new_instance(self, simplifications: str = "") -> Instance:
        while len(self.instances) >= MAX_INSTANCES:
            self._drop(next(iter(self.instances.values())))
        interface = self._spare.pop() if self._spare else self._interface_class()
        instance = Instance(interface, self._random_class(0), simplifications=simplifications)
        self.instances[id(instance)] = instance
        return instance

    def _fill(self, instance: Instance, key: TaskKey) -> None:
        self._enter(instance)
        interface = instance.interface
        error = interface.load(key.task, key.variation, key.simplifications, False)
        if error:
            raise EnvFailed(f"ScienceWorld cannot load {key}: {error}")
        getattr(interface, "score_$eq")(0.0)  # loading does not reset the values from the previous episode
        getattr(interface, "isComplete_$eq")(False)
        instance.simplifications = str(self._simplifier.getSimplificationsUsed()).replace(" ", "")

    def _forget_tasks(self, instance: Instance) -> None:
        """Free the objects for all tasks and variations, which loading creates and which use most of the memory."""
        getattr(instance.interface, "taskMaker_$eq")(None)

    def step(self, instance: Instance, action: str) -> StepResult:
        """Take an action. The instance cannot be used after a `JavaError`."""
        with self._calling(instance):
            interface = instance.interface
            text = str(interface.step(encodable(action)))
            score, completed = interface.getScore(), interface.getCompleted()
            if self._in_error_state(interface):
                raise JavaError(text)
            return StepResult(text, float(score), bool(completed))

    def _in_error_state(self, interface: Any) -> bool:
        """Return whether ScienceWorld has caught an internal exception. It then only repeats the error message."""
        option = interface.agentInterface()
        inner = option.get()
        broken = bool(inner.isInErrorState())
        self.connection.free(inner)
        self.connection.free(option)
        return broken

    def intro(self, instance: Instance) -> TaskIntro:
        with self._calling(instance), self._scratch_randomness():
            task = str(instance.interface.getTaskDescription())
            look = str(instance.interface.freeActionLook())
            return TaskIntro(task, look, self._strings(instance, "getPossibleActions"))

    def query(self, instance: Instance, method: str) -> str:
        """Call a method without side effects and return its string result."""
        with self._calling(instance), self._scratch_randomness():
            return str(getattr(instance.interface, method)())

    def query_list(self, instance: Instance, method: str) -> tuple[str, ...]:
        """Call a method without side effects and return its list of strings."""
        with self._calling(instance), self._scratch_randomness():
            return self._strings(instance, method)

    def _strings(self, instance: Instance, method: str) -> tuple[str, ...]:
        strings = getattr(instance.interface, method)()
        joined = str(self._join("\n", strings))
        self.connection.free(strings)
        return tuple(joined.split("\n")) if joined else ()

    def gold(self, key: TaskKey) -> tuple[str, ...]:
        """Return ScienceWorld's own solution, a list of actions."""
        with self._calling():
            instance = self._new_instance(key.simplifications)
            self._paths.clear()  # cached paths depend on the first episode that requested them
            self._fill(instance, key)
            # `load` with `generateGoldPath` makes the same call, and loads the task again afterwards.
            tasks = instance.interface.taskMaker()
            result = tasks.createGoldActions(key.task, key.variation, instance.interface)
            array = result._1()
            path = tuple(str(action) for action in array)
            for used in (array, result, tasks):
                self.connection.free(used)
            self._forget_tasks(instance)
            self._drop(instance)
            return path

    def drop(self, instance: Instance) -> None:
        """Free an instance."""
        with self.lock:
            if self.alive and not instance.gone:
                with self._calling():
                    self._drop(instance)

    def _drop(self, instance: Instance) -> None:
        instance.gone = True
        if self.instances.pop(id(instance), None) is not None:
            if self._current is instance:
                self._current = None
            self.connection.free(instance.random)
            if len(self._spare) < MAX_SPARE_INTERFACES:
                self._spare.append(instance.interface)
            else:
                self.connection.free(instance.interface)

    # Locking and global variables

    @contextmanager
    def _calling(self, instance: Instance | None = None) -> Iterator[None]:
        """Hold the lock and swap in `instance`. If the process is lost, kill it and raise EnvFailed."""
        with self.lock:
            if self.dead or (instance is not None and instance.gone):
                raise InstanceGone
            try:
                with self.connection.errors():
                    while self.trash:
                        self._drop(self.trash.popleft())
                    if instance is not None:
                        self._enter(instance)
                    yield
            except ProcessLost as err:
                code = self.kill()
                raise EnvFailed(
                    f"ScienceWorld's Java process was lost (exit status {code}; {err}). The next call starts a new "
                    "process. The step was not executed and may be repeated."
                ) from err

    def _enter(self, instance: Instance) -> None:
        """Swap in the instance's global variables."""
        self.instances.move_to_end(id(instance))
        before = self._current
        if before is instance:
            return
        if before is not None:
            before.object_count = int(self._counter.count())
        self._current = None  # no instance is current if one of the calls below fails
        self._random_field.set(self._random, instance.random)
        getattr(self._counter, "count_$eq")(instance.object_count)
        self.connection.free(self._simplifier.parseSimplificationStr(instance.simplifications))
        self._current = instance

    @contextmanager
    def _scratch_randomness(self) -> Iterator[None]:
        """Use a newly seeded random generator inside the block, so that queries are repeatable and change no state."""
        instance = self._current
        self._scratch_random.setSeed(0)
        self._random_field.set(self._random, self._scratch_random)
        yield
        if instance is not None:
            self._random_field.set(self._random, instance.random)

    def kill(self) -> int | None:
        """End the process now and return its exit status."""
        self.dead = True
        self.instances.clear()
        process = self._process
        code = process.poll()
        process.kill()
        process.wait()
        connection = getattr(self, "connection", None)
        if connection is not None:
            # Close the connection after the process has ended, so that a reading thread reaches the end of the stream.
            connection.close()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def disown(self) -> None:
        """Release the parent's Java process in a forked child process, so that it still ends with the parent."""
        self.dead = True
        null = os.open(os.devnull, os.O_RDWR)
        for end in (self._process.stdin, self._process.stdout, self.connection):
            if end is not None:
                os.dup2(null, end.fileno())  # closing could block on a lock that a thread of the parent held
        os.close(null)
        self._process.returncode = 0  # this process must not wait for the Java process, which is not its child

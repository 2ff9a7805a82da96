"""Warn about an environment that does not return, for which a run would otherwise wait in silence."""

from __future__ import annotations

import logging
import os
import threading
import time
from itertools import count

from palestra.core import Env
from palestra.rollout.types import Task

logger = logging.getLogger(__name__)

SECONDS = 60.0  # duration of a call after which it is reported


class SlowCalls:
    """The calls of environments that are running. A thread reports the first slow call of each method.

    The thread ends when no call is running.
    """

    def __init__(self) -> None:
        self.watching = False  # whether the thread is running
        self._numbers = count()
        self._running: dict[int, tuple[Env, Task, str, float]] = {}
        self._reported: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def begin(self, env: Env, task: Task, method: str) -> int:
        """Add a call of an environment's method and return its number, for `end`."""
        number = next(self._numbers)
        self._running[number] = (env, task, method, time.monotonic())
        if not self.watching:
            with self._lock:
                if not self.watching:
                    self.watching = True
                    threading.Thread(target=self._watch, name="palestra-slow-calls", daemon=True).start()
        return number

    def end(self, number: int) -> None:
        """Remove a call. A process that was forked during the call does not have it."""
        self._running.pop(number, None)

    def _watch(self) -> None:
        while True:
            time.sleep(SECONDS / 6)
            with self._lock:
                self.watching = False  # before the check, so that a call that it misses starts another thread
                calls = list(self._running.values())
                if not calls:
                    return
                self.watching = True
            for env, task, method, started in calls:
                seconds = time.monotonic() - started
                if seconds >= SECONDS:
                    self._report(_name(env, task), task.seed, method, seconds)

    def _report(self, name: str, seed: int, method: str, seconds: float) -> None:
        if (name, method) not in self._reported:
            self._reported.add((name, method))
            duration = f"{name} with seed {seed} has not returned from {method} for {seconds:.0f} s"
            logger.warning("%s; a %s timeout (--%s-timeout) ends and retries such an episode", duration, method, method)


def _name(env: Env, task: Task) -> str:
    """Return the id of a task's environment, which tasks in rollout workers do not have."""
    return task.env_id or (type(env.unwrapped).__name__ if env.spec is None else env.spec.id)


slow_calls = SlowCalls()
os.register_at_fork(after_in_child=slow_calls.__init__)  # type: ignore[misc]  # the thread is not copied

"""Environment in a worker process that runs the tasks of a rollout.

It is separate from the rollout modules, so that a worker does not have to import them.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from contextlib import suppress
from random import Random
from typing import Any

from palestra.core import Env, Reset
from palestra.errors import EnvFailed, UsageError
from palestra.types import Step

MAX_CACHED_ENVS = 4  # maximum number of open environments for different tasks per sub-environment


class TaskHost(Env):
    """Environment in a worker that can run any task; the `reset` options contain the pickled factory.

    When a worker is replaced, its episodes are replayed starting with `reset`, so the new worker receives the factory.
    """

    def __init__(self) -> None:
        self._envs: OrderedDict[str, Env] = OrderedDict()  # least recently used first
        self._env: Env | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        request = options or {}
        key = request["key"]
        if request["rebuild"]:
            self.close()
        if key not in self._envs:
            [factory] = pickle.loads(request["factory"])  # noqa: S301  # sent by the parent process
            try:
                self._envs[key] = factory()
            except UsageError as err:
                return "", {"usage_error": err}
            if len(self._envs) > MAX_CACHED_ENVS:
                _, oldest = self._envs.popitem(last=False)
                oldest.close()
        self._envs.move_to_end(key)
        self._env = self._envs[key]
        return self._env.reset(seed=seed, options=request["options"])

    @property
    def running(self) -> Env:
        if self._env is None:
            raise EnvFailed("no episode was started")
        return self._env

    def step(self, action: str) -> Step:
        return self.running.step(action)

    def sample_random_action(self) -> str:
        return self.running.sample_random_action()

    def expert_action(self) -> str | None:
        return self.running.expert_action()

    def expert_code(self) -> str | None:
        return self.running.expert_code()

    def example_action(self) -> str:
        return self.running.example_action()

    def render(self, mode: str = "text") -> str | bytes | None:
        return self.running.render(mode)

    @property
    def player_rng(self) -> Random:
        return self.running.player_rng

    def close(self) -> None:
        envs, self._envs, self._env = list(self._envs.values()), OrderedDict(), None
        for env in envs:
            with suppress(Exception, SystemExit):
                env.close()

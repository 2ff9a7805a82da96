"""Environment wrapper that injects failures at given rates. The seed determines when they occur."""

from __future__ import annotations

import os
import time
from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue
from palestra.seeding import Rng, child_seed
from palestra.types import Step


class FaultyEnv(Wrapper):
    """Make steps in `env` fail with the given probabilities. The episode's seed determines which steps fail.

    Args:
        slow: Probability that a step takes `seconds` longer.
        hang: Probability that a step never returns.
        raises: Probability that a step raises RuntimeError.
        crash: Probability that a step terminates the process immediately, like a segmentation fault.
        grow: Probability that a step leaks `megabytes` of memory.
        wrong_seed: Probability that a reset ignores its seed and starts a different episode.
    """

    def __init__(
        self,
        env: Env,
        *,
        slow: float = 0.0,
        hang: float = 0.0,
        raises: float = 0.0,
        crash: float = 0.0,
        grow: float = 0.0,
        wrong_seed: float = 0.0,
        seconds: float = 0.2,
        megabytes: float = 8.0,
    ) -> None:
        super().__init__(env)
        self._rates = {"slow": slow, "hang": hang, "raises": raises, "crash": crash, "grow": grow}
        self._wrong_seed = wrong_seed
        for name, rate in (*self._rates.items(), ("wrong_seed", wrong_seed)):
            if not 0.0 <= rate <= 1.0:
                raise BadValue(f"{name} must be a probability between 0 and 1, got {rate!r}")
        self._seconds = seconds
        self._megabytes = megabytes
        self._turn = 0
        self._episode = 0
        self._leaked: list[bytearray] = []

    @property
    def inline(self) -> bool:  # type: ignore[override]
        return False  # steps may be slow, so async callers must run them in a thread

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is not None and self._draw(seed, "seed") < self._wrong_seed:
            seed += 1
        observation, info = self.env.reset(seed=seed, options=options)
        self._turn, self._episode = 0, info["seed"]
        return observation, info

    def step(self, action: str) -> Step:
        self._turn += 1
        drawn = self._draw(self._episode, str(self._turn))
        for name, rate in self._rates.items():
            if drawn < rate:
                self._fail(name)
                break
            drawn -= rate
        return self.env.step(action)

    def _draw(self, seed: int, label: str) -> float:
        return Rng(child_seed(seed, "fault", label)).random()

    def _fail(self, kind: str) -> None:
        if kind == "slow":
            time.sleep(self._seconds)
        elif kind == "hang":
            while True:
                time.sleep(3_600)
        elif kind == "raises":
            raise RuntimeError(f"injected failure in turn {self._turn}")
        elif kind == "crash":
            os._exit(70)
        else:
            self._leaked.append(bytearray(int(self._megabytes * 2**20)))

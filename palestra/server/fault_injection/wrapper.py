"""Faulty: an environment that misbehaves at a known rate, the same way for the same seed."""

from __future__ import annotations

import os
import time
from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue
from palestra.seeding import Rng, child_seed
from palestra.types import Step


class Faulty(Wrapper):
    """`env`, whose steps go wrong with these probabilities, drawn from the episode's seed and the turn.

    `slow` sleeps `seconds` first; `hang` never returns; `raises` raises RuntimeError; `crash` ends the process at once,
    as a segmentation fault would; `grow` keeps `megabytes` more for good. `wrong_seed` begins another episode than the
    one asked for, with that probability.
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
                raise BadValue(f"{name} is a probability, from 0 to 1, got {rate!r}")
        self._seconds = seconds
        self._megabytes = megabytes
        self._turn = 0
        self._episode = 0
        self._kept: list[bytearray] = []

    @property
    def inline(self) -> bool:  # type: ignore[override]
        return False  # a step may take long

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is not None and self._chance(seed, "seed") < self._wrong_seed:
            seed += 1
        observation, info = self.env.reset(seed=seed, options=options)
        self._turn, self._episode = 0, info["seed"]
        return observation, info

    def step(self, action: str) -> Step:
        self._turn += 1
        drawn = self._chance(self._episode, str(self._turn))
        for name, rate in self._rates.items():
            if drawn < rate:
                self._go_wrong(name)
                break
            drawn -= rate
        return self.env.step(action)

    def _chance(self, seed: int, what: str) -> float:
        return Rng(child_seed(seed, "fault", what)).random()

    def _go_wrong(self, how: str) -> None:
        if how == "slow":
            time.sleep(self._seconds)
        elif how == "hang":
            while True:
                time.sleep(3_600)
        elif how == "raises":
            raise RuntimeError(f"told to raise in turn {self._turn}")
        elif how == "crash":
            os._exit(70)
        else:
            self._kept.append(bytearray(int(self._megabytes * 2**20)))

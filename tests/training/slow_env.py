"""Environment whose steps are much slower in some episodes than in others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from palestra.core import Reset
from palestra.envs.games.guess_the_number import GuessTheNumber
from palestra.types import Step


class SlowGuess(GuessTheNumber):
    """Number-guessing game with slow steps if the number is divisible by 4; seed `late` waits for the file `until`."""

    def __init__(self, *, late: int = -1, until: str = "", **options: Any) -> None:
        super().__init__(min_number=1, max_number=10, max_turns=4, **options)
        self._late = late
        self._until = Path(until)
        self._seed: int | None = None

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self._seed = seed
        return self.reset(seed=seed, options=options)

    async def astep(self, action: str) -> Step:
        await asyncio.sleep(0.3 if self.hidden % 4 == 0 else 0.001)
        while self._seed == self._late and not self._until.exists():
            await asyncio.sleep(0.01)
        return self.step(action)

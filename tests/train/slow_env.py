"""An environment that answers late, now and then very late."""

from __future__ import annotations

import asyncio
from typing import Any

from palestra.envs.games.guess_the_number import GuessTheNumber
from palestra.types import Step


class SlowGuess(GuessTheNumber):
    """Every fourth episode takes far longer than the others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_number=1, max_number=10, max_turns=4, **options)

    async def astep(self, action: str) -> Step:
        await asyncio.sleep(0.3 if self.hidden % 4 == 0 else 0.001)
        return self.step(action)

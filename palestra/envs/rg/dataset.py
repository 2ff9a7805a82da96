r"""ReasoningGym: items of a reasoning-gym data set, drawn from the seed, scored by its own scorer behind shields.

The package runs in a process of its own (`worker`): nothing of it is imported here, the process-wide generators stay
untouched, and a scorer that raises or hangs is an EnvFailed, never a 0. A score of 1 is a success; `info["score"]` is
the score as it is. puzzle24 is stricter than the package's: 24 exactly, from exactly the numbers given.
"""

from __future__ import annotations

from typing import Any, Unpack

from palestra.envs.rg.levels import RATES
from palestra.envs.rg.pool import check_config, shared_pool
from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.parsing import clip

OTHERS = 8  # items whose answers the random player gives
LEAST = 1.0 - 1e-9  # a score from which an answer is right


class ReasoningGym(TaskEnv):
    """`name` is the data set, `level` that of its curriculum (None: its defaults), `config` further settings of it."""

    inline = False

    def __init__(
        self,
        *,
        name: str,
        level: int | None = None,
        config: dict[str, Any] | None = None,
        draw_limit: float = 120.0,
        score_limit: float = 30.0,
        **options: Unpack[TaskOptions],
    ) -> None:
        super().__init__(**options)
        if not (draw_limit > 0 and score_limit > 0):
            raise BadValue(f"limits are seconds above 0, got {draw_limit!r} and {score_limit!r}")
        check_level(name, level)
        self.name = name
        self.level = level
        self.config = check_config(config or {})
        self.draw_limit = float(draw_limit)
        self.score_limit = float(score_limit)
        if self.config:
            refused = shared_pool().ask(f"setting up {name}", self.draw_limit, do="check", **self._which())
            if refused is not None:
                raise BadValue(f"{name} does not take these settings: {refused}")

    def draw(self, options: dict[str, Any]) -> Item:  # noqa: ARG002  # there is nothing to choose but the seed
        return self._item(self.rng.getrandbits(31))

    def _item(self, seed: int) -> Item:
        found = shared_pool().ask(
            f"drawing an item of {self.name}", self.draw_limit, do="item", seed=seed, **self._which()
        )
        answer = "" if found["answer"] is None else found["answer"]
        return Item(question=found["question"], answer=answer, gold=found["entry"], key=f"{self.name}[{seed}]")

    def _which(self) -> dict[str, Any]:
        return {"name": self.name, "level": self.level, "config": self.config}

    def grade(self, answer: str) -> Grade:
        if self.item.answer == self.item.answer.strip():
            answer = answer.strip()  # blanks around an answer mean something only where the right one has some
        score = shared_pool().ask(
            f"the scorer of {self.name}",
            self.score_limit,
            do="score",
            answer=answer,
            entry=self.item.gold,
            **self._which(),
        )
        return Grade(correct=score >= LEAST, score=score, why=f"{clip(answer)!r} scores {score:g}")

    def random_answer(self) -> str:
        return self._item(self.player_rng.randrange(OTHERS)).answer

    def example_answer(self) -> str:
        return "42"


def check_level(name: str, level: int | None) -> None:
    """BadValue where there is no such data set, or no such level of it."""
    if name not in RATES:
        from difflib import get_close_matches

        near = get_close_matches(name, RATES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadValue(f"reasoning-gym has no data set {name!r}.{hint} `palestra envs rg:` lists all.")
    levels = RATES[name][1:]
    if level is None:
        return
    if not levels:
        raise BadValue(f"{name} has no levels")
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level < len(levels):
        raise BadValue(f"{name} has levels 0 to {len(levels) - 1}, got {level!r}")
    if levels[level] is None:
        raise BadValue(
            f"{name} has no level {level} that can be drawn: the package refuses it, or never comes to an end"
        )

"""Environment for reasoning-gym: items are generated from the seed and scored by their dataset's scorer.

The package runs in a separate process (`worker`), so it cannot change the global random generators of this process. A
scorer that raises or hangs leads to EnvFailed instead of a reward of 0. An answer is correct if its score is 1;
`info["score"]` is the score itself. puzzle24 is stricter than in the package: the result must be exactly 24, and the
expression must use exactly the given numbers.
"""

from __future__ import annotations

import re
from typing import Any, Unpack

from palestra.envs.rg.levels import RATES
from palestra.envs.rg.process_pool import check_config, shared_pool
from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.parsing import clip, plain

OTHER_ITEMS = 8  # the random player replies with the answer to one of this many other items
MIN_CORRECT_SCORE = 1.0 - 1e-9
_NAMED_NUMBER = re.compile(r"[A-Za-z]\s*=\s*(-?[0-9]{1,40}(?:\.[0-9]{1,40})?)")


class ReasoningGym(TaskEnv):
    """Questions from the reasoning-gym dataset called `name`.

    `level` is a level of its curriculum, or None for the default settings; `config` overrides individual settings.
    With `size`, the tasks come from a dataset with that size and the seed `dataset_seed`, as in GEM, which uses size
    500 and seed 42. Seed s then selects entry s mod `size`, and `split` has no effect. `draw_timeout` and
    `score_timeout` are the time limits in seconds for generating an item and for scoring an answer.
    """

    inline = False

    def __init__(
        self,
        *,
        name: str,
        level: int | None = None,
        config: dict[str, Any] | None = None,
        size: int | None = None,
        dataset_seed: int = 42,
        draw_timeout: float = 120.0,
        score_timeout: float = 30.0,
        **options: Unpack[TaskOptions],
    ) -> None:
        super().__init__(**options)
        if not (draw_timeout > 0 and score_timeout > 0):
            raise BadValue(
                f"draw_timeout and score_timeout must be positive, got {draw_timeout!r} and {score_timeout!r}"
            )
        check_level(name, level)
        for keyword, value, least in (("size", size, 1), ("dataset_seed", dataset_seed, 0)):
            if not (keyword == "size" and value is None) and (type(value) is not int or value < least):
                raise BadValue(f"{keyword} must be an integer of at least {least}, got {value!r}")
        self.num_tasks = size
        self.dataset_seed = dataset_seed
        if size is not None:
            self.filters_tasks = False
        self.name = name
        self.level = level
        self.config = check_config(config or {})
        self.draw_timeout = float(draw_timeout)
        self.score_timeout = float(score_timeout)
        if self.config:
            error = shared_pool().request(f"checking {name}", self.draw_timeout, method="check", **self._settings())
            if error is not None:
                raise BadValue(f"invalid config for {name}: {error}")

    def draw(self, options: dict[str, Any]) -> Item:  # noqa: ARG002  # this task accepts no reset options
        if self.num_tasks is not None:
            return self._item(self.dataset_seed, self.seed % self.num_tasks)
        return self._item(self.rng.getrandbits(31))

    def _item(self, seed: int, index: int | None = None) -> Item:
        """Return the item for `seed`, or entry `index` in the dataset with that seed."""
        entry = {} if index is None else {"size": self.num_tasks, "index": index}
        item = shared_pool().request(
            f"generating an item of {self.name}",
            self.draw_timeout,
            method="item",
            seed=seed,
            **self._settings(),
            **entry,
        )
        answer = "" if item["answer"] is None else item["answer"]
        key = f"{self.name}[{seed}]" if index is None else f"{self.name}[{seed}][{index}]"
        return Item(question=item["question"], answer=answer, gold=item["entry"], key=key)

    def _settings(self) -> dict[str, Any]:
        return {"name": self.name, "level": self.level, "config": self.config}

    def grade(self, answer: str) -> Grade:
        if self.item.answer == self.item.answer.strip():
            answer = answer.strip()  # outer whitespace matters only if the correct answer has some
        score = self._score(answer)
        if score < MIN_CORRECT_SCORE:
            stripped = _without_name(plain(answer))
            if self.item.answer.endswith(".") and not stripped.endswith("."):
                stripped += "."
            if stripped != answer and stripped:  # the scorers do not support markup such as \text{Yes}
                score = max(score, self._score(stripped))
        return Grade(correct=score >= MIN_CORRECT_SCORE, score=score, why=f"{clip(answer)!r} scores {score:g}")

    def _score(self, answer: str) -> float:
        score: float = shared_pool().request(
            f"the scorer of {self.name}",
            self.score_timeout,
            method="score",
            answer=answer,
            entry=self.item.gold,
            **self._settings(),
        )
        return score

    def random_answer(self) -> str:
        return self._item(self.player_rng.randrange(OTHER_ITEMS)).answer

    def example_answer(self) -> str:
        return "42"


def _without_name(answer: str) -> str:
    """Return the number in `x = 5`; return other answers unchanged."""
    match = _NAMED_NUMBER.fullmatch(answer)
    return answer if match is None else match[1]


def check_level(name: str, level: int | None) -> None:
    """Raise BadValue if the dataset or its level does not exist."""
    if name not in RATES:
        from difflib import get_close_matches

        matches = get_close_matches(name, RATES, n=1)
        hint = f" Did you mean {matches[0]}?" if matches else ""
        raise BadValue(f"reasoning-gym has no dataset {name!r}.{hint} `palestra envs rg:` lists all datasets.")
    levels = RATES[name][1:]
    if level is None:
        return
    if not levels:
        raise BadValue(f"{name} has no levels; omit level")
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level < len(levels):
        raise BadValue(f"{name} has levels 0 to {len(levels) - 1}, got {level!r}")
    if levels[level] is None:
        raise BadValue(
            f"level {level} of {name} is not available: the package rejects its settings or takes too long to generate "
            "an item"
        )

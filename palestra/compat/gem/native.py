"""Add the attributes and methods of GEM's environments to Palestra's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, cast

from palestra.compat.gem.base import EnvWrapper
from palestra.compat.gem.parsing import TERMINAL_STATE, extract_last_boxed_answer, extract_last_tagged_answer
from palestra.core import Env, Reset
from palestra.envs.tasks.base import TaskEnv
from palestra.envs.tasks.cells import get_cell
from palestra.envs.tasks.data import DataTask
from palestra.errors import BadValue, EpisodeOver
from palestra.seeding import check_seed
from palestra.types import Observation, Step


class NativeEnv(EnvWrapper):
    """A Palestra environment with GEM's interface: `env_id`, `answer`, `dataset`, `get_state`, `reset(idx=...)`, ...

    When a question has been answered, the observation is TERMINAL_STATE and `info["correct"]` is set, and the next
    answer may be given without a reset, as in GEM. A step after the end of a game has reward 0.
    """

    first_obs: Observation = ""
    _factory: Callable[..., Any] | None = None
    _keywords: Mapping[str, Any] = {}  # keyword arguments of `make`

    def __init__(self, env: Env, env_id: str = "", entry_point: Any = "", extract_boxed: bool | None = None) -> None:
        super().__init__(env)
        self.env_id = env_id
        self.entry_point = entry_point
        self.extract_boxed = extract_boxed
        self._cells: dict[str, Any] = {}  # answers and tests that the caller has set for the current question

    def set_factory(self, factory: Callable[..., Env], keywords: dict[str, Any]) -> None:
        """Let `spawn` call `factory` with the keyword arguments of `make`; set `seed` to theirs, as in GEM."""
        self._factory, self._keywords = factory, keywords
        if keywords.get("seed") is not None:
            self.seed = check_seed(keywords["seed"])

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        if same_state or self._factory is None:
            return super().spawn(same_state, **kwargs)
        return cast(Self, self._factory(**{**self._keywords, **kwargs}))

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None, idx: int | None = None, **more: Any
    ) -> Reset:
        selected = {**(options or {}), **more} | ({} if idx is None else {"index": idx})
        self.first_obs, info = self.env.reset(seed=seed, options=selected or None)
        self._cells.clear()
        return self.first_obs, info

    def step(self, action: str) -> Step:
        task = self.env.unwrapped
        if not isinstance(task, TaskEnv):
            try:
                return self.env.step(action)
            except EpisodeOver:  # GEM's environments can be stepped after the end
                return Step(TERMINAL_STATE, 0.0, True, False, {"ending": "over"})
        self._continue(task)
        if self.extract_boxed is not None:
            action = self._extracted(action)
        step = self.env.step(action)
        if not step.terminated:
            return step
        info = {**step.info, "correct": bool(step.info.get("success"))}
        return Step(TERMINAL_STATE, step.reward, True, step.truncated, info)

    def _extracted(self, action: str) -> str:
        """Return only the part of the action that contains the answer in the requested format."""
        if self.extract_boxed:
            answer = extract_last_boxed_answer(action)
            return "" if answer is None else f"\\boxed{{{answer}}}"
        answer = extract_last_tagged_answer(action)
        return "" if answer is None else f"<answer>{answer}</answer>"

    def _continue(self, task: TaskEnv) -> None:
        """Allow another answer to the current question."""
        if task.ending == "reset":
            self.reset()
        elif task.ending is not None:
            task.turn, task.ending = 0, None

    @property
    def answer(self) -> Any:
        """The correct answer to the current question, as in the dataset; can be set."""
        task = self.env.unwrapped
        if isinstance(task, TaskEnv) and not isinstance(getattr(task, "answer", None), str):
            return task.item.answer  # a generated question
        return self._cell("answer")

    @answer.setter
    def answer(self, value: Any) -> None:
        self._replace_cell("answer", value)

    @property
    def tests(self) -> Any:
        """The tests for the current programming problem, as in the dataset; can be set."""
        return self._cell("tests")

    @tests.setter
    def tests(self, value: Any) -> None:
        self._replace_cell("tests", value)

    def _cell(self, keyword: str) -> Any:
        if keyword in self._cells:
            return self._cells[keyword]
        task = self.env.unwrapped
        column = getattr(task, keyword, None)
        if not isinstance(task, DataTask) or not isinstance(column, str):
            raise AttributeError(f"{task!r} has no {keyword}")
        return get_cell(task.rows[task.index], column)

    def _replace_cell(self, keyword: str, value: Any) -> None:
        task = self.env.unwrapped
        column = getattr(task, keyword, None)
        if not isinstance(task, DataTask) or not isinstance(column, str):
            raise BadValue(f"{task!r} has no {keyword} that can be set")
        self._continue(task)
        task.item = task.make_item({**task.rows[task.index], column: value}, task.item.key)
        self._cells[keyword] = value

    @property
    def dataset(self) -> Any:
        """The rows of the dataset as a `datasets.Dataset`; can be set."""
        task = self.env.unwrapped
        if not isinstance(task, DataTask):
            raise AttributeError(f"{task!r} has no dataset")
        from palestra.optional import require

        rows = task.rows
        return require("datasets", extra="data").Dataset.from_list([rows[index] for index in range(len(rows))])

    @dataset.setter
    def dataset(self, value: Any) -> None:
        task = self.env.unwrapped
        if not isinstance(task, DataTask):
            raise BadValue(f"{task!r} has no dataset that can be set")
        task.use_rows(value)

    def get_state(self) -> dict[str, Any]:
        """Return the state of the episode, for `set_state`."""
        return {"env": self.env.fork(), "first_obs": self.first_obs}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that `get_state` returned."""
        self.env = state["env"].fork()
        self.first_obs = state["first_obs"]

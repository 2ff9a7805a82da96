"""Base class for tasks that use each row of a data set once per epoch, in shuffled order.

The seed of an episode determines its row: with n rows, seed s selects position s % n of epoch s // n, and each epoch
has a different order. Seeds 0 to n - 1 therefore cover every row exactly once, even if they are distributed over
several processes. `reset()` without a seed advances to the next position.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.core import Reset
from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.envs.tasks.order import position_of, row_at
from palestra.envs.tasks.rows import Rows, open_rows
from palestra.envs.tasks.source import Source
from palestra.errors import BadValue

_ABSENT = object()


class DataOptions(TaskOptions, total=False):
    """Keyword arguments accepted by every task that uses a data set."""

    dataset: str | None  # id of a data set on the Hugging Face Hub
    path: str | None  # local file or folder
    split: str | None
    config: str | None
    revision: str | None
    mirror: str | None  # folder with data sets at owner/name (default: environment variable PALESTRA_MIRROR)
    shuffle: bool  # whether to shuffle the rows (default True)
    shuffle_seed: int  # seed for shuffling (default 0)
    question: str  # column with the question


class DataTask(TaskEnv):
    """Base class for tasks that use a data set.

    A subclass implements `make_item` and accepts the names of its columns as keyword arguments.
    """

    shared = TaskEnv.shared | {"rows"}

    rows: Rows
    index: int  # index of the current row in the data set
    epoch: int

    def __init__(
        self,
        *,
        dataset: str | None = None,
        path: str | None = None,
        split: str | None = None,
        config: str | None = None,
        revision: str | None = None,
        mirror: str | None = None,
        shuffle: bool = True,
        shuffle_seed: int = 0,
        question: str = "question",
        max_attempts: int = 1,
        success_reward: float = 1.0,
        fail_reward: float = 0.0,
        format_error_reward: float = -0.1,
        format_reward: float = 0.0,
    ) -> None:
        super().__init__(
            max_attempts=max_attempts,
            success_reward=success_reward,
            fail_reward=fail_reward,
            format_error_reward=format_error_reward,
            format_reward=format_reward,
        )
        self.shuffle = shuffle
        self.shuffle_seed = shuffle_seed
        self.question = question
        self.rows = open_rows(
            Source(
                dataset=dataset,
                path=None if path is None else str(path),
                split=split,
                config=config,
                revision=revision,
                mirror=None if mirror is None else str(mirror),
            )
        )
        self.rows.require_column(question, "question")

    @abstractmethod
    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        """Return the item for a row; `key` identifies the row in logs."""

    def start_episode(self, seed: int | None) -> int:
        if seed is None:
            if "seed" in self.__dict__:
                seed = self.seed + 1
            elif self._first_seed is None:
                seed = super().start_episode(None)
                seed -= seed % len(self.rows)  # start at the first position of an epoch
        return super().start_episode(seed)

    def draw(self, options: dict[str, Any]) -> Item:
        n = len(self.rows)
        index = options.pop("index", None)
        self.epoch, position = divmod(self.seed, n)
        if index is None:
            self.index = self._row_at(position)
        else:
            self.index = self._check_index(index)
        return self.make_item(self.rows[self.index], f"{self.rows.source.name}[{self.index}]")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is None and options and "index" in options:
            # Choose the seed so that a later reset with info["seed"] selects the same row.
            seed = self._seed_of(self._check_index(options["index"]))
        observation, info = super().reset(seed, options)
        return observation, {**info, "index": self.index, "epoch": self.epoch}

    def _seed_of(self, row: int) -> int:
        n = len(self.rows)
        epoch = self.epoch if "seed" in self.__dict__ else 0
        if not self.shuffle:
            return epoch * n + row
        return epoch * n + position_of(row, n, seed=self.shuffle_seed, epoch=epoch)

    def _row_at(self, position: int) -> int:
        if not self.shuffle:
            return position
        return row_at(position, len(self.rows), seed=self.shuffle_seed, epoch=self.epoch)

    def _check_index(self, index: object) -> int:
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise BadValue(f"index must be a row number, got {index!r}")
        number = int(index.__index__())
        if not 0 <= number < len(self.rows):
            raise BadValue(f"{self.rows.source.name} has rows 0 to {len(self.rows) - 1}, got index {number}")
        return number

    def random_row(self) -> Mapping[str, Any]:
        """Return a random row for the random player; its answer is well-formed but usually wrong for this question."""
        return self.rows[self.player_rng.randrange(len(self.rows))]


def get_cell(row: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column; a dotted name accesses nested values (`reward_model.ground_truth`, `answers.0`)."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        if isinstance(value, Mapping):
            value = value.get(name, _ABSENT)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            value = _ABSENT
        if value is _ABSENT:
            raise BadValue(f"the row has no column {column!r}; its columns are {', '.join(map(str, row))}")
    return value


def cell_text(value: Any) -> str:
    """Return the text of a question, which may be a string, a number or a list of chat messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(m, Mapping) and "content" in m for m in value):
        return "\n\n".join(cell_text(message["content"]) for message in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise BadValue(f"a question must be text, got {type(value).__name__}; select another column with question=")


def cell_texts(value: Any) -> list[str]:
    """Return the accepted answers in a cell: text, a number, a list, or an object with aliases as in TriviaQA."""
    if isinstance(value, Mapping):
        candidates = [value.get(key) for key in ("value", "text", "aliases", "answer", "answers")]
        return list(
            dict.fromkeys(text for candidate in candidates if candidate is not None for text in cell_texts(candidate))
        )
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence):
        return list(dict.fromkeys(text for element in value for text in cell_texts(element)))
    if value is None:
        return []
    return [str(value)]

"""Base class for tasks that use each row of a dataset once per epoch, in shuffled order.

An episode's seed determines its row: with n rows, seed s selects position s % n of epoch s // n, and each epoch
has a different order. Seeds 0 to n - 1 therefore cover every row exactly once, even if they are distributed over
several processes. `reset()` without a seed advances to the next position.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.core import Reset
from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.envs.tasks.order import position_of, row_at
from palestra.envs.tasks.rows import Rows, memory_rows, open_rows
from palestra.envs.tasks.source import Source
from palestra.envs.tasks.splits import row_fingerprint
from palestra.errors import BadValue


class DataOptions(TaskOptions, total=False):
    """Keyword arguments accepted by every task that uses a dataset."""

    # Id of a dataset on the Hugging Face Hub, or the rows: a list of mappings or a `datasets.Dataset`.
    dataset: str | Sequence[Mapping[str, Any]] | None
    path: str | None  # local file or folder
    data_split: str | None  # name of a dataset split, for example "validation"
    config: str | None
    revision: str | None
    mirror: str | None  # folder with datasets at owner/name (default: environment variable PALESTRA_MIRROR)
    shuffle: bool  # whether to shuffle the rows (default True)
    shuffle_seed: int  # seed for shuffling (default 0)
    question: str  # column with the question


class DataTask(TaskEnv):
    """Base class for tasks that use a dataset.

    A subclass implements `make_item` and accepts its column names as keyword arguments.
    """

    shared = TaskEnv.shared | {"rows"}

    rows: Rows
    num_tasks: int  # number of rows in the split
    index: int  # index of the current row in the dataset
    epoch: int

    def __init__(
        self,
        *,
        dataset: str | Sequence[Mapping[str, Any]] | None = None,
        path: str | None = None,
        data_split: str | None = None,
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
        split: str | None = None,
        format_note: bool = True,
    ) -> None:
        super().__init__(
            split=split,
            format_note=format_note,
            max_attempts=max_attempts,
            success_reward=success_reward,
            fail_reward=fail_reward,
            format_error_reward=format_error_reward,
            format_reward=format_reward,
        )
        self.shuffle = shuffle
        self.shuffle_seed = shuffle_seed
        self.question = question
        if dataset is not None and not isinstance(dataset, str):
            self.use_rows(dataset)
            return
        source = Source(
            dataset=dataset,
            path=None if path is None else str(path),
            split=data_split,
            config=config,
            revision=revision,
            mirror=None if mirror is None else str(mirror),
        )
        self._use(self.open_rows(source))

    def use_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Use these rows, a list of mappings or a `datasets.Dataset`, instead of the current ones."""
        self._use(memory_rows(rows))

    def _use(self, rows: Rows) -> None:
        rows.require_column(self.question, "question")
        self.rows = rows
        self.num_tasks = len(self._split_rows)

    def open_rows(self, source: Source) -> Rows:
        """Return the rows in the dataset; a subclass may join or select rows."""
        return open_rows(source)

    def task_columns(self) -> tuple[str, ...]:
        """Return the columns that identify a task; rows that agree in them are copies of the same question."""
        return (self.question,)

    @property
    def _split_rows(self) -> Sequence[int]:
        return self.rows.in_split(self.split, self.task_columns())

    @abstractmethod
    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        """Return the item for a row; `key` identifies the row in logs."""

    def start_episode(self, seed: int | None) -> int:
        if seed is None:
            if "seed" in self.__dict__:
                seed = self.seed + 1
            elif self._first_seed is None:
                seed = super().start_episode(None)
                seed -= seed % self.num_tasks  # start with the first row of an epoch
        return super().start_episode(seed)

    def select(self, options: dict[str, Any]) -> Item:
        return self.draw(options)  # only rows in `split` are sampled

    def draw(self, options: dict[str, Any]) -> Item:
        index = options.pop("index", None)
        self.epoch, position = divmod(self.seed, self.num_tasks)
        if index is None:
            self.index = self._row_at(position)
        else:
            self.index = self._check_index(index)
        row = self.rows[self.index]
        self.task_id = row_fingerprint(row, self.task_columns())
        return self.make_item(row, f"{self.rows.source.name}[{self.index}]")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is None and options and "index" in options:
            # Choose the seed so that a later reset with info["seed"] selects the same row.
            seed = self._seed_of(self._check_index(options["index"]))
        observation, info = super().reset(seed, options)
        return observation, {**info, "index": self.index, "epoch": self.epoch}

    def _seed_of(self, row: int) -> int:
        n = self.num_tasks
        epoch = self.epoch if "seed" in self.__dict__ else 0
        place = self._place_in_split(row)
        if not self.shuffle:
            return epoch * n + place
        return epoch * n + position_of(place, n, seed=self.shuffle_seed, epoch=epoch)

    def _row_at(self, position: int) -> int:
        place = position
        if self.shuffle:
            place = row_at(position, self.num_tasks, seed=self.shuffle_seed, epoch=self.epoch)
        return self._split_rows[place]

    def _place_in_split(self, row: int) -> int:
        """Return a row's position among the rows in the split, without shuffling."""
        return bisect_left(self._split_rows, row)

    def _check_index(self, index: object) -> int:
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise BadValue(f"index must be a row number, got {index!r}")
        number = int(index.__index__())
        if not 0 <= number < len(self.rows):
            raise BadValue(f"{self.rows.source.name} has rows 0 to {len(self.rows) - 1}, got index {number}")
        place = self._place_in_split(number)
        if place == self.num_tasks or self._split_rows[place] != number:
            raise BadValue(f"row {number} of {self.rows.source.name} does not belong to split {self.split!r}")
        return number

    def random_row(self) -> Mapping[str, Any]:
        """Return a random row for the random player; its answer is well-formed but usually wrong for this question."""
        return self.rows[self.player_rng.randrange(len(self.rows))]

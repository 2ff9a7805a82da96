"""EnvSpec, which describes an environment without building it, and EnvId, which parses environment ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from palestra.errors import BadEnvId, BadValue

_ID = re.compile(
    r"(?P<family>[a-z][a-z0-9_]*):(?P<name>[A-Za-z0-9_.]+)"
    r"(?:-v(?P<version>[0-9]+))?(?:-(?P<variant>[A-Za-z0-9_.-]+))?"
)

SPLITS = ("train", "test")
TEST_DIGITS = frozenset("02")  # a task whose fingerprint starts with one of these hexadecimal digits is held out
MAX_UNEARNED = 0.35  # a higher success rate for a player without skill needs a `rates_reason`
RATES_REASONS = ("few_answers", "easy_by_design")
UNBOUNDED = (float("-inf"), float("inf"))  # reward range of an env that does not declare one


class EnvId(NamedTuple):
    """The parts of an id of the form `family:Name-vN[-variant]`; dataset ids have no version."""

    family: str
    name: str
    version: int | None
    variant: str | None

    @classmethod
    def parse(cls, text: str) -> EnvId:
        """Split an id into its parts; raise BadEnvId if it does not follow the grammar."""
        match = _ID.fullmatch(text)
        if match is None:
            raise BadEnvId(
                f"{text!r} is not an environment id. Ids have the form family:Name-vN[-variant], "
                "for example game:Sudoku-v0-easy."
            )
        version = match["version"]
        return cls(match["family"], match["name"], None if version is None else int(version), match["variant"])


def check_split(split: str | None) -> str | None:
    """Return `split` if it is "train", "test" or None; raise BadValue otherwise."""
    if split is not None and split not in SPLITS:
        raise BadValue(f'split must be "train", "test" or None for all tasks, got {split!r}')
    return split


def fingerprint(key: object) -> str:
    """Return 16 hexadecimal digits that identify a task; `key` must have the same `repr` in every process."""
    return blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def split_of(task_id: str) -> str:
    """Return the split of a task, "train" or "test", from its fingerprint; one task in eight is held out."""
    return "test" if task_id[0] in TEST_DIGITS else "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """Description of a registered environment: its entry point, keyword arguments and measured properties."""

    id: str
    entry_point: str  # "package.module:Class"; imported when an env is built
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""  # one-line description for tables
    reward_range: tuple[float, float] = UNBOUNDED  # reward range of a single step; UNBOUNDED if not declared
    expert_success: float | None = None  # measured success rate; 1.0 means every seed; None if there is no expert
    random_success: float | None = None  # measured success rate of the random player
    echo_success: float | None = None  # measured success rate of a player that answers with parts of the prompt
    constant_success: float | None = None  # measured success rate of the best answer that ignores the question
    rates_reason: str = ""  # why one of these rates is above 0.35: "few_answers" or "easy_by_design"
    splits: tuple[str, ...] = ()  # ("train", "test"): accepts split= and holds tasks out; (): fresh seeds only
    seeded: bool = True  # whether the task depends on the seed
    extra: str | None = None  # pip extra that the environment requires
    needs_data: bool = False  # whether the tasks come from a downloaded dataset or a user's file

    @property
    def parts(self) -> EnvId:
        """The parts of the id, which may be at the end of a URL; for `module:Class`, the module and the class."""
        name = self.id
        if "://" in name:
            name = name.partition("?")[0].rpartition("/")[2]
        try:
            return EnvId.parse(name)
        except BadEnvId:
            family, _, rest = name.rpartition(":")
            return EnvId(family, rest, None, None)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-serializable data; infinite bounds of the reward range become None."""
        low, high = self.reward_range
        bounds = [end if abs(end) != float("inf") else None for end in (low, high)]
        return {**asdict(self), "kwargs": dict(self.kwargs), "reward_range": bounds}

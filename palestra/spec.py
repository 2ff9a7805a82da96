"""EnvSpec: what is known of an environment before it is made. Data only, JSON-able."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from palestra.errors import BadEnvId

_ID = re.compile(
    r"(?P<family>[a-z][a-z0-9_]*):(?P<name>[A-Za-z0-9_.]+)"
    r"(?:-v(?P<version>[0-9]+))?(?:-(?P<variant>[A-Za-z0-9_.-]+))?"
)


class EnvId(NamedTuple):
    """The parts of `family:Name-vN[-variant]`; data sets carry no version."""

    family: str
    name: str
    version: int | None
    variant: str | None

    @classmethod
    def parse(cls, text: str) -> EnvId:
        match = _ID.fullmatch(text)
        if match is None:
            raise BadEnvId(
                f"{text!r} is not an environment id. Ids read family:Name-vN[-variant], such as game:Sudoku-v0-easy."
            )
        version = match["version"]
        return cls(match["family"], match["name"], None if version is None else int(version), match["variant"])


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """An environment by name: where its class is, how to call it, and what was measured of it."""

    id: str
    entry_point: str  # "package.module:Class"; imported when an env is made, not before
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""  # one line for tables
    reward_range: tuple[float, float] = (float("-inf"), float("inf"))  # of a single step
    expert_success: float | None = None  # 1.0: every seed; otherwise measured; None: no expert can exist
    random_success: float | None = None  # measured
    seeded: bool = True  # False: every seed gives the same task
    extra: str | None = None  # the pip extra its family needs
    needs_data: bool = False  # True: it asks about rows that are downloaded first, or that a file of the user's holds

    @property
    def parts(self) -> EnvId:
        return EnvId.parse(self.id)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; unbounded ends of the reward range become None."""
        low, high = self.reward_range
        bounds = [end if abs(end) != float("inf") else None for end in (low, high)]
        return {**asdict(self), "kwargs": dict(self.kwargs), "reward_range": bounds}

"""The registered ids of the family `logic`. Data only."""

from __future__ import annotations

from palestra.envs.logic.data_ids import DATA
from palestra.envs.logic.generated import GENERATED

SPECS = [*DATA, *GENERATED]

"""The registered ids of the family `code`. Data only."""

from __future__ import annotations

from palestra.envs.code.data_ids import DATA
from palestra.envs.code.generated import GENERATED

SPECS = [*DATA, *GENERATED]

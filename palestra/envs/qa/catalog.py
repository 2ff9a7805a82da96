"""The registered ids of the family `qa`. Data only."""

from __future__ import annotations

from palestra.envs.qa.data_ids import DATA
from palestra.envs.qa.generated import GENERATED

SPECS = [*DATA, *GENERATED]

"""The registered ids of the family `math`. Data only."""

from __future__ import annotations

from palestra.envs.math.data_ids import DATA
from palestra.envs.math.generated import GENERATED

SPECS = [*DATA, *GENERATED]

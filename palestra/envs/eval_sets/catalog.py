"""The registered ids of the family `eval`. Data only."""

from __future__ import annotations

from palestra.envs.eval_sets.data_ids import DATA

SPECS = [*DATA]

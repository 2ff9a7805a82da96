"""Wrappers that each modify one aspect of an environment."""

from palestra.wrappers.factory import get_wrapper_fns, resolve_wrappers
from palestra.wrappers.history import History
from palestra.wrappers.horizon import Horizon
from palestra.wrappers.record import Record
from palestra.wrappers.rewards import ClipReward, ScaleReward, ShapeReward, TurnCost
from palestra.wrappers.statistics import Statistics
from palestra.wrappers.tools import Tools

__all__ = [
    "ClipReward",
    "History",
    "Horizon",
    "Record",
    "ScaleReward",
    "ShapeReward",
    "Statistics",
    "Tools",
    "TurnCost",
    "get_wrapper_fns",
    "resolve_wrappers",
]

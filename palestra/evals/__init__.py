"""Evaluate agents: suites, resumable runs, confidence intervals, paired comparisons and reports."""

from palestra.evals.agents import ModelSettings, Player
from palestra.evals.compare import compare
from palestra.evals.folder import Record, read_record
from palestra.evals.report import write_report
from palestra.evals.rescore import Rescored, rescore
from palestra.evals.run import Evaluation, Settings, evaluate
from palestra.evals.suite import Entry, Suite, entry, load
from palestra.evals.summary import Prices, summarise

__all__ = [
    "Entry",
    "Evaluation",
    "ModelSettings",
    "Player",
    "Prices",
    "Record",
    "Rescored",
    "Settings",
    "Suite",
    "compare",
    "entry",
    "evaluate",
    "load",
    "read_record",
    "rescore",
    "summarise",
    "write_report",
]

"""Evaluate agents: suites, resumable runs, confidence intervals, paired comparisons and reports."""

from palestra.evals.agents import EvaluatedAgent, ModelSettings
from palestra.evals.api import evaluate
from palestra.evals.comparison import compare
from palestra.evals.folder import EvaluationRecord, read_evaluation
from palestra.evals.report import write_report
from palestra.evals.rescoring import RescoreResult, rescore
from palestra.evals.run import EvalSettings, Evaluation, run_evaluation
from palestra.evals.suite import Suite, SuiteEntry, load_suite, suite_entry
from palestra.evals.summary import Prices, summarise

__all__ = [
    "EvalSettings",
    "EvaluatedAgent",
    "Evaluation",
    "EvaluationRecord",
    "ModelSettings",
    "Prices",
    "RescoreResult",
    "Suite",
    "SuiteEntry",
    "compare",
    "evaluate",
    "load_suite",
    "read_evaluation",
    "rescore",
    "run_evaluation",
    "suite_entry",
    "summarise",
    "write_report",
]

"""Conformance suite for environments: `check_env` tests the invariants on which training and evaluation rely."""

from palestra.conformance.check import Report, check_env
from palestra.conformance.rates import Rate, success_rate

__all__ = ["Rate", "Report", "check_env", "success_rate"]

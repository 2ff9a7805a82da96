"""Prove that an environment is sound before anyone trains on it: the conformance suite, shipped to users."""

from palestra.checks.rates import Rate, success_rate
from palestra.checks.suite import Report, check_env

__all__ = ["Rate", "Report", "check_env", "success_rate"]

"""Prove that an environment is sound before anyone trains on it: the conformance suite, shipped to users."""

from palestra.conformance.check import Report, check_env
from palestra.conformance.rates import Rate, success_rate

__all__ = ["Rate", "Report", "check_env", "success_rate"]

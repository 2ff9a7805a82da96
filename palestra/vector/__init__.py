"""Vector execution: many environments at once, none waiting for the slowest, none taking the others down."""

from palestra.vector.base import VectorEnv
from palestra.vector.make import make_vec
from palestra.workers.types import Failure, Flags, Outcome, Ready

__all__ = ["Failure", "Flags", "Outcome", "Ready", "VectorEnv", "make_vec"]

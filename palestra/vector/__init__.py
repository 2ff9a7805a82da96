"""Vector execution: many environments at once, none waiting for the slowest, none taking the others down."""

from palestra.vector.base import VectorEnv
from palestra.vector.make import make_vec
from palestra.workers.types import BoolList, EnvFailure, EnvResult, VectorStep

__all__ = ["BoolList", "EnvFailure", "EnvResult", "VectorEnv", "VectorStep", "make_vec"]

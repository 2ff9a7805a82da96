"""Run many environments together: in one thread, in several threads or processes, on a Ray cluster or on a server."""

from palestra.vector.base import VectorEnv
from palestra.vector.make import make_vec
from palestra.workers.types import BoolList, EnvFailure, EnvResult, VectorStep

__all__ = ["BoolList", "EnvFailure", "EnvResult", "VectorEnv", "VectorStep", "make_vec"]

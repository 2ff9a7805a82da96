"""Register the environment for server tests. Only server processes import this module."""

from __future__ import annotations

from palestra import register
from tests.server.bad_envs import TRICKY

register(TRICKY, "tests.server.bad_envs:Tricky")

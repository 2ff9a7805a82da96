"""Registers what a server of the tests serves. Servers import it; the tests' own process has no such id."""

from __future__ import annotations

from palestra import register
from tests.server.bad_envs import TRICKY

register(TRICKY, "tests.server.bad_envs:Tricky")

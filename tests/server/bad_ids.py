"""Register the environment of the server tests; imported by servers, not by the test process."""

from __future__ import annotations

from palestra import register
from tests.server.bad_envs import TRICKY

register(TRICKY, "tests.server.bad_envs:Tricky")

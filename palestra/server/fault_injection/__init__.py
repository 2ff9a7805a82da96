"""Fault injection for tests: environments that fail, and a proxy that delays, drops or corrupts a server's responses.

`palestra serve fault: --import palestra.server.fault_injection.envs` serves the environments.
`FaultyProxy(url, drop=0.01, ...)` forwards requests to any server and injects faults into the responses.
"""

from __future__ import annotations

from palestra.server.fault_injection.proxy import FaultyProxy
from palestra.server.fault_injection.wrapper import FaultyEnv

__all__ = ["FaultyEnv", "FaultyProxy"]

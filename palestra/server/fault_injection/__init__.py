"""Things that go wrong on purpose, for tests of what has to survive them: environments, and a server in between.

`palestra serve fault: --import palestra.server.fault_injection.envs` serves the environments;
`FaultyServer(url, drop=0.01, ...)` stands before any server and spoils what passes through it.
"""

from __future__ import annotations

from palestra.server.fault_injection.proxy import FaultyServer
from palestra.server.fault_injection.wrapper import Faulty

__all__ = ["Faulty", "FaultyServer"]

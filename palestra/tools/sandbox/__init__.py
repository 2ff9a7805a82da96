"""Run untrusted Python programs, isolated from the host.

```
with Sandbox() as sandbox:
    sandbox.run("print(6*7)").stdout        # "42\\n"
```
"""

from palestra.tools.sandbox.isolation import IsolationLevel, isolation_level
from palestra.tools.sandbox.sandbox import Sandbox, shared_sandbox
from palestra.tools.sandbox.session import SandboxSession
from palestra.tools.sandbox.template_process import ProgramKilled, SandboxDied
from palestra.tools.sandbox.types import Limits, Result

__all__ = [
    "IsolationLevel",
    "Limits",
    "ProgramKilled",
    "Result",
    "Sandbox",
    "SandboxDied",
    "SandboxSession",
    "isolation_level",
    "shared_sandbox",
]

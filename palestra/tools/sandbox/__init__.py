"""The sandbox: programs nobody has read, run apart from everything.

```
with Sandbox() as box:
    box.run("print(6*7)").stdout        # "42\\n"
```
"""

from palestra.tools.sandbox.box import Sandbox, shared_sandbox
from palestra.tools.sandbox.levels import Level, level
from palestra.tools.sandbox.records import Limits, Result
from palestra.tools.sandbox.session import Session
from palestra.tools.sandbox.worker import SandboxDied

__all__ = ["Level", "Limits", "Result", "Sandbox", "SandboxDied", "Session", "level", "shared_sandbox"]

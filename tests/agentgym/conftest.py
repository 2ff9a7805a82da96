"""Collect the tests in this folder, which need a checkout of AgentGym, only with `make test-agentgym`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = os.environ.get("PALESTRA_AGENTGYM")

if CHECKOUT is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # AgentGym imports the OpenAI client, which `make frameworks` installs.
    sys.path += [str(Path(CHECKOUT) / "agentenv"), str(Path(__file__).parents[2] / ".cache" / "frameworks" / "litellm")]

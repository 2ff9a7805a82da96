"""Tests that run only with `make test-frameworks`, because they need several hundred MB of packages."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PALESTRA_FRAMEWORKS") == "full" else ["test_*.py"]

"""Collect the tests in this folder, which start Ray clusters and take minutes, only with `make test-ray`."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "PALESTRA_TEST_RAY" in os.environ else ["test_*.py"]

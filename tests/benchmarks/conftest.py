"""Collect the tests in this folder, which run every benchmark with small sizes, only with `make test-benchmarks`."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "PALESTRA_TEST_BENCHMARKS" in os.environ else ["test_*.py"]

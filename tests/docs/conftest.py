"""Tests that run only with `make test-docs`, because they train models for several minutes."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PALESTRA_TEST_DOCS") else ["test_*.py"]

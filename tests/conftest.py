"""Settings for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing may be fetched while testing
os.environ.setdefault("PALESTRA_CACHE", str(Path(__file__).parents[1] / ".cache" / "palestra"))  # not the user's own

# Speed is measured in benchmarks/, not asserted here. CI draws the same examples every time; everybody else explores.
settings.register_profile("palestra", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("palestra")

"""Settings for the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing may be fetched while testing

settings.register_profile("palestra", deadline=None)  # speed is measured in benchmarks/, not asserted here
settings.load_profile("palestra")

"""Settings for the whole suite."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing may be fetched while testing
os.environ.setdefault("OMP_NUM_THREADS", "1")  # models here are tiny, and other tests run beside this one
os.environ.setdefault("PALESTRA_CACHE", str(Path(__file__).parents[1] / ".cache" / "palestra"))  # not the user's own

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as under `make test &`; tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Speed is measured in benchmarks/, not asserted here. CI draws the same examples every time; everybody else explores.
settings.register_profile("palestra", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("palestra")


def pytest_collection_finish() -> None:
    """What the test modules imported stays: no search for garbage needs to go through it, hundreds of times."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With `-n`: half of the tests for each, in order, so that a file's fixtures are made once; who is done first helps
    the other."""
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]  # it ships no types

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None

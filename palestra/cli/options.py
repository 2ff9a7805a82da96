"""Configure logging in third-party libraries, for the verbs that load models."""

from __future__ import annotations

import logging
import sys

from palestra.optional import require


def quiet_libraries() -> None:
    """Disable the progress bars and log messages of transformers, huggingface_hub and matplotlib.

    In a terminal, the progress bars for downloads stay enabled because a download may take minutes.
    """
    bars = require("huggingface_hub.utils", extra="hf")
    require("transformers.utils.logging", extra="hf").disable_progress_bar()
    if sys.stderr.isatty():
        bars.enable_progress_bars()
    for name in ("huggingface_hub", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)

"""Settings of the libraries beneath, shared by verbs that load models."""

from __future__ import annotations

import logging
import sys

from palestra.optional import require


def quiet_libraries() -> None:
    """Turn off progress bars and log lines of transformers, huggingface_hub and matplotlib.

    Progress bars of downloads, which take minutes, stay on in a terminal.
    """
    bars = require("huggingface_hub.utils", extra="hf")
    require("transformers.utils.logging", extra="hf").disable_progress_bar()
    if sys.stderr.isatty():
        bars.enable_progress_bars()
    for name in ("huggingface_hub", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)

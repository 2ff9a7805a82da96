"""Import the scripts in recipes/papers."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

PAPERS = Path(__file__).parents[2] / "recipes" / "papers"
SCRIPTS = ["gem", "agentgym"]


def module(name: str) -> ModuleType:
    return importlib.import_module(name)

"""Import what an extra brings, or say exactly how to get it."""

from __future__ import annotations

import importlib
from types import ModuleType

from palestra.errors import MissingExtra


def require(module: str, *, extra: str) -> ModuleType:
    """The imported `module`; where it is absent, MissingExtra with the pip line."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name is None or not (module == err.name or module.startswith(f"{err.name}.")):
            raise  # the module is there; something it imports is not, which is another problem
        raise MissingExtra(
            f"{module.partition('.')[0]} is not installed. Get it with: pip install 'palestra[{extra}]'"
        ) from err

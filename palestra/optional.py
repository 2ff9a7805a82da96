"""Import optional packages, with an error that contains the pip command if a package is missing."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from palestra.errors import MissingExtra


def require(module: str, *, extra: str = "", command: str = "") -> ModuleType:
    """Import and return `module`. If it is not installed, raise MissingExtra with the pip command that installs it.

    `command` is the command for a package that no extra contains.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name is None or not (module == err.name or module.startswith(f"{err.name}.")):
            raise  # the module is installed, but one of its own imports is missing
        raise MissingExtra(
            f"{module.partition('.')[0]} is not installed. Install it with: {command or install_command(extra)}"
        ) from err


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra: from PyPI, or from the checkout that this package belongs to."""
    checkout = Path(__file__).parent.parent
    if not (checkout / "pyproject.toml").is_file():
        return f"pip install 'palestra[{extra}]'"
    here = checkout.resolve() == Path.cwd().resolve()
    return f"pip install -e '{'.' if here else checkout}[{extra}]'"

"""Run the `palestra` command with `python -m palestra`."""

from palestra.cli import entry_point

entry_point()

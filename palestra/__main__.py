"""Run the `palestra` command with `python -m palestra`."""

import sys

from palestra.cli import main

sys.exit(main())

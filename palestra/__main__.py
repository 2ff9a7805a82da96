"""`python -m palestra` is the `palestra` command."""

import sys

from palestra.cli import main

sys.exit(main())

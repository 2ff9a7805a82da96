"""Make packages in .cache/frameworks importable; `make frameworks` installs them."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".cache" / "frameworks"

for package in sorted(FOLDER.glob("*/.installed")):
    sys.path.append(str(package.parent))

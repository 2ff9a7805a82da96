"""Run a Python command, such as a worker of pytest-xdist, in a fork of the warm process (see warm_process.py).

    python tests/warm_worker.py -c CODE

The imports of a worker take several seconds of CPU time, so workers share them.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from tests.warm_process import Popen

    command = [sys.executable, *(word for word in sys.argv[1:] if word != "-u")]
    sys.exit(Popen(command, stdin=0).wait())

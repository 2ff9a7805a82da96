"""Replace this process with a command that is killed when its parent exits: `python -m ... COMMAND ARGUMENT...`.

Standard input must be a pipe whose other end only the parent holds. The kernel kills the process group when that end
closes, even if the parent was killed.
"""

from __future__ import annotations

import os
import sys

from palestra.workers.worker_setup import end_with_parent


def main() -> None:
    """Run the command in the arguments."""
    end_with_parent(0)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # the command comes from `VLLMServer`


if __name__ == "__main__":
    main()

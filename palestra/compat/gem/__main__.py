"""Run a script or module that imports `gem` with Palestra's environments.

python -m palestra.compat.gem SCRIPT.py [ARGUMENTS]
python -m palestra.compat.gem -m MODULE [ARGUMENTS]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from palestra.compat.gem.modules import install


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(__doc__.strip())
        raise SystemExit(0 if arguments and arguments[0] in ("-h", "--help") else 2)
    install()
    if arguments[0] == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    if not script.exists():
        raise SystemExit(f"the script {script} does not exist")
    sys.path.insert(0, str(script.resolve().parent))
    sys.argv = arguments
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()

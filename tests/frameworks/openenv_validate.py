"""Check several URLs as `openenv validate --url` does, in an interpreter with OpenEnv; print the URLs that fail.

The command itself runs for the first URL; calling its function for the others is faster.
"""

import json
import sys

from openenv.cli.__main__ import app  # type: ignore[import-not-found, unused-ignore]
from openenv.cli._validation import validate_running_environment  # type: ignore[import-not-found, unused-ignore]
from typer.testing import CliRunner  # type: ignore[import-not-found, unused-ignore]


def main(urls: list[str]) -> None:
    command = CliRunner().invoke(app, ["validate", "--url", urls[0]])
    reports = [validate_running_environment(url, timeout_s=60) for url in urls]
    failed = [report for report in reports if not report["passed"]]
    verdict = command.output.strip().splitlines()[-1]
    print(json.dumps({"command": verdict, "passed": len(reports) - len(failed), "failed": failed}))


if __name__ == "__main__":
    main(json.load(sys.stdin))

"""Run the `palestra` command. Ctrl-C ends it without a traceback, even during imports."""

import os
import signal


def main() -> None:
    """Run the command and end the process with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # SIGINT is ignored in a background job
        signal.signal(signal.SIGINT, _end)
    from palestra.cli import entry_point

    entry_point()


def _end(*_: object) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()

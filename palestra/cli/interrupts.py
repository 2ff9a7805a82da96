"""Handle Ctrl-C at any time during a command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

PATIENCE = 0.2  # seconds; a command that ends within this time after Ctrl-C only prints its own message
REPEAT_AFTER = 0.01  # seconds


@contextmanager
def acknowledged() -> Iterator[None]:
    """While the block runs in a terminal, raise KeyboardInterrupt on Ctrl-C and print a message if that takes long.

    The message is printed by a thread, because the main thread may be in a call that cannot be interrupted, for example
    in a computation with torch. A KeyboardInterrupt that Python has to ignore, because it was raised in a finalizer, is
    raised again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with _repeated_in_finalizers(), _reported_after_delay():
        yield


@contextmanager
def _repeated_in_finalizers() -> Iterator[None]:
    """Raise a KeyboardInterrupt again if it was raised where Python ignores exceptions, as it often does in imports."""
    previous = sys.unraisablehook

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous(unraisable)
            return
        _repeat()  # an exception raised in this hook would also be ignored

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = previous


def _repeat() -> None:
    """Send the signal of Ctrl-C to the calling thread, if it is the main one, until a handler has run.

    A single signal has no effect until the end of a call that blocks if it arrives just before the call.
    """
    main, before, handled = threading.get_ident(), signal.getsignal(signal.SIGINT), threading.Event()
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        return

    def handler(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.signal(signal.SIGINT, before)
        before(number, frame)

    def send() -> None:
        delay = REPEAT_AFTER
        while not handled.wait(delay):
            signal.pthread_kill(main, signal.SIGINT)
            if signal.getsignal(signal.SIGINT) is not handler:  # has run, or another one was set
                return
            delay = min(2 * delay, 1.0)  # the main thread may be in a call that signals do not interrupt

    signal.signal(signal.SIGINT, handler)
    threading.Thread(target=send, name="palestra-repeat-ctrl-c", daemon=True).start()


@contextmanager
def _reported_after_delay() -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(reader, ended), name="palestra-ctrl-c", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(previous)
        os.close(writer)  # ends the thread
        thread.join()
        os.close(reader)


def _watch(reader: int, ended: threading.Event) -> None:
    while signals := os.read(reader, 64):
        if signal.SIGINT in signals and not ended.wait(PATIENCE):
            with suppress(OSError, ValueError):
                sys.stderr.write("\nstopping; press Ctrl-C again to stop immediately\n")
                sys.stderr.flush()
            return


def end_on_interrupt(code: int) -> None:
    """End the process with `code` at the next Ctrl-C, without waiting for its threads or printing a traceback."""

    def end(*_: object) -> NoReturn:
        if code == 130:
            os.write(2, b"\ninterrupted\n")
        os._exit(code)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)


def is_cause_of(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused the error; pydantic, for example, reports it as an error in a schema."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or KeyboardInterrupt.__name__ in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Deliver Ctrl-C only after the block. Processes that are started in the block never receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

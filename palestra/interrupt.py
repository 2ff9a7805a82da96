"""Raise an exception in another thread. Worker processes import this module, which must not import asyncio."""

from __future__ import annotations

import ctypes
import threading
import time

DELIVERY_SECONDS = 0.02  # seconds within which a thread that executes Python code receives an exception


def raise_in_thread(ident: int, error: type[BaseException]) -> None:
    """Raise an exception in another thread as soon as it executes Python code.

    Until the exception is raised, Python 3.11 marks all threads as having something to handle. In a thread with a
    profile or trace function, the interpreter then loops forever at the next function call. A thread that is blocked
    may never handle the exception, so the mark is removed shortly afterwards. The blocked thread keeps its exception.
    """
    _set_exception(ident, error)
    threading.Thread(target=_remove_mark, name="palestra-interrupt", daemon=True).start()


def _set_exception(ident: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def _remove_mark() -> None:
    """Raise and catch an exception in this thread: the interpreter then removes the mark from all threads."""
    time.sleep(DELIVERY_SECONDS)
    try:
        _set_exception(threading.get_ident(), _Handled)
        while True:  # the exception is raised at the next jump
            pass
    except _Handled:
        return


class _Handled(BaseException):
    """Exception that a thread raises in itself."""

"""Reduce garbage collection while episodes run.

Episodes create many objects that live until the end of a step, so Python soon starts a collection of all objects in the
process. With torch and a model loaded, each of these takes tenths of a second, as long as a thousand short episodes.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_users = 0  # number of `frozen_heap` blocks that are active
_thresholds: tuple[int, int, int] | None = None  # Python's thresholds before these blocks, if they changed them

YOUNG_OBJECTS = 50_000  # number of new objects after which Python looks for garbage among them (by default: 700)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Inside the block, collect garbage less often and only among new objects; blocks may be nested.

    Objects that are no longer used are freed as usual, unless they are part of reference cycles. Does nothing if the
    process has called `gc.freeze` itself.
    """
    global _users, _thresholds
    with _lock:
        _users += 1
        if _users == 1 and gc.get_freeze_count() == 0:
            _thresholds = gc.get_threshold()
            young, *older = _thresholds
            gc.set_threshold(max(young, YOUNG_OBJECTS) if young else 0, *older)  # 0 disables the collector
            gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _thresholds is not None:
                gc.set_threshold(*_thresholds)
                gc.unfreeze()
                _thresholds = None

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
_previous: tuple[int, int, int] = gc.get_threshold()  # garbage collection thresholds before the first block
_frozen = False  # whether an active block froze the heap
# Whether the process has called `gc.freeze` itself. This is remembered, because Python counts the frozen objects one by
# one, which takes 50 ms for the modules of a training process, more than a rollout of short episodes.
_frozen_by_process = False

# Number of new objects after which Python looks for garbage among them (by default 700), and number of such collections
# after which it also scans older objects (by default 10). A step with 1,024 short episodes creates about 200,000
# objects, and visiting them takes a tenth of its time because of their lists of token ids. Most are freed without a
# collection and are then no longer counted, so a collection is needed only every few steps or later.
THRESHOLDS = 500_000, 10


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Inside the block, collect garbage less often and only among new objects; blocks may be nested.

    Objects that are no longer used are freed as usual, unless they are part of reference cycles. If the process has
    called `gc.freeze` itself before a block, collections are only less frequent in all later blocks.
    """
    global _users, _previous, _frozen, _frozen_by_process
    with _lock:
        _users += 1
        if _users == 1:
            _previous = gc.get_threshold()
            if _previous[0]:  # 0 disables the collector
                young, middle, old = _previous
                gc.set_threshold(max(young, THRESHOLDS[0]), max(middle, THRESHOLDS[1]), old)
            _frozen_by_process = _frozen_by_process or gc.get_freeze_count() > 0
            if not _frozen_by_process:
                gc.freeze()
                _frozen = True
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                gc.set_threshold(*_previous)
                if _frozen:
                    gc.unfreeze()
                    _frozen = False

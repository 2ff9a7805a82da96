"""What a server counts: plain numbers, which metrics.py shows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Stats:
    """Of one server, since it started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # (what, code)
        self.seconds: dict[str, list[int]] = {}  # what -> calls up to each bucket, and beyond
        self.total: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.opened = 0
        self.retries = 0
        self.episodes = 0

    def took(self, what: str, seconds: float, calls: int = 1) -> None:
        counts = self.seconds.get(what)
        if counts is None:
            counts = self.seconds[what] = [0] * (len(BUCKETS) + 1)
        counts[bisect_left(BUCKETS, seconds)] += calls
        self.total[what] += calls * seconds  # type: ignore[assignment]

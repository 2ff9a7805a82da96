"""Count server events and export the counters in the Prometheus text format."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palestra.optional import require

if TYPE_CHECKING:
    from palestra.server.dispatcher import Dispatcher

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Stats:
    """Counters since the server started. They are plain numbers for speed, since some of them change at every step."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # keyed by operation and result code
        self.call_counts: dict[str, list[int]] = {}  # operation -> number of calls per duration bucket
        self.call_seconds: dict[str, float] = {}
        self.ended: Counter[str] = Counter()  # keyed by the cause
        self.opened = 0
        self.retries = 0
        self.episodes = 0

    def record_call(self, operation: str, seconds: float, calls: int = 1) -> None:
        """Record `calls` calls that took `seconds` each."""
        counts = self.call_counts.get(operation)
        if counts is None:
            counts = self.call_counts[operation] = [0] * (len(BUCKETS) + 1)
            self.call_seconds[operation] = 0.0
        counts[bisect_left(BUCKETS, seconds)] += calls
        self.call_seconds[operation] += calls * seconds


def metrics_text(dispatcher: Dispatcher, websockets: int) -> bytes:
    """Return the response body for `/metrics`."""
    prometheus = require("prometheus_client", extra="serve")
    text: bytes = prometheus.generate_latest(_Collector(dispatcher, websockets))
    return text


class _Collector:
    """Collector for prometheus-client that reads a dispatcher's counters."""

    def __init__(self, dispatcher: Dispatcher, websockets: int) -> None:
        self._dispatcher = dispatcher
        self._websockets = websockets

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        dispatcher = self._dispatcher
        stats, pool = dispatcher.stats, dispatcher.calls.pool
        for name, text, value in (
            ("sessions", "Open sessions.", len(dispatcher.sessions)),
            ("calls_in_flight", "Calls that are running in workers.", dispatcher.calls.in_flight),
            ("bytes_in_flight", "Size of the requests and responses in flight.", dispatcher.budget.used),
            ("websockets", "Open WebSocket connections.", self._websockets),
            ("ready", "1 if the server accepts new sessions, otherwise 0.", int(dispatcher.ready)),
        ):
            yield GaugeMetricFamily(f"palestra_{name}", text, value=value)
        for name, text, value in (
            ("sessions_opened", "Sessions opened.", stats.opened),
            ("retries", "Requests that were retries of an earlier call.", stats.retries),
            ("over_budget", "Messages refused because of the bytes in flight.", dispatcher.budget.refused),
            ("episodes", "Finished episodes.", stats.episodes),
            ("worker_deaths", "Worker processes that exited unexpectedly.", pool.deaths),
        ):
            yield CounterMetricFamily(f"palestra_{name}", text, value=value)
        ended = CounterMetricFamily("palestra_sessions_ended", "Ended sessions by cause.", labels=["cause"])
        for cause, count in sorted(stats.ended.items()):
            ended.add_metric([cause], count)
        yield ended
        requests = CounterMetricFamily("palestra_requests", "Requests by operation and code.", labels=["op", "code"])
        for labels, count in sorted(stats.requests.items()):
            requests.add_metric(labels, count)
        yield requests
        sessions = GaugeMetricFamily("palestra_worker_sessions", "Sessions per worker.", labels=["worker"])
        memory = GaugeMetricFamily("palestra_worker_resident_bytes", "Resident memory per worker.", labels=["worker"])
        for worker in pool.workers:
            sessions.add_metric([str(worker.number)], len(worker.sessions))
            memory.add_metric([str(worker.number)], resident_bytes(worker.pid))
        yield sessions
        yield memory
        seconds = HistogramMetricFamily("palestra_call_seconds", "Duration of calls in workers.", labels=["op"])
        for operation, counts in sorted(stats.call_counts.items()):
            total, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            seconds.add_metric([operation], buckets, sum_value=stats.call_seconds[operation])
        yield seconds


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if the system does not report it."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_SIZE
    except (OSError, IndexError, ValueError):
        return 0

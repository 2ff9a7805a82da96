"""A server's counters -> Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable

from palestra.server.dispatcher import Desk
from palestra.server.health import memory_of
from palestra.server.stats import BUCKETS


def metrics_text(desk: Desk, sockets: int) -> str:
    """What `/metrics` answers."""
    stats, room = desk.stats, desk.room
    lines: list[str] = []

    def add(name: str, kind: str, told: str, values: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP palestra_{name} {told}")
        lines.append(f"# TYPE palestra_{name} {kind}")
        lines.extend(f"palestra_{name}{labels} {value:g}" for labels, value in values)

    add("sessions", "gauge", "Sessions that are open.", [("", len(desk.sessions))])
    add("sessions_opened_total", "counter", "Sessions that were opened.", [("", stats.opened)])
    ended = [(f'{{cause="{cause}"}}', count) for cause, count in sorted(stats.ended.items())]
    add("sessions_ended_total", "counter", "Sessions that have ended, by cause.", ended)
    asked = [(f'{{op="{op}",code="{code}"}}', count) for (op, code), count in sorted(stats.requests.items())]
    add("requests_total", "counter", "Requests, by what was asked and how it ended.", asked)
    add("retries_total", "counter", "Calls that were asked for again and answered as before.", [("", stats.retries)])
    add("episodes_total", "counter", "Episodes that came to their end.", [("", stats.episodes)])
    add("calls_in_flight", "gauge", "Calls that are under way in workers.", [("", desk.in_flight)])
    add("sockets", "gauge", "Clients on the multiplexed socket.", [("", sockets)])
    add("worker_deaths_total", "counter", "Worker processes that died.", [("", room.deaths)])
    add("ready", "gauge", "1 where new sessions are taken.", [("", float(desk.ready))])
    per_worker = [(f'{{worker="{w.number}"}}', len(w.sessions)) for w in room.workers]
    add("worker_sessions", "gauge", "Sessions in each worker.", per_worker)
    sizes = [(f'{{worker="{w.number}"}}', memory_of(w.link.process.pid)) for w in room.workers]
    add("worker_resident_bytes", "gauge", "Memory of each worker.", sizes)
    lines.append("# HELP palestra_call_seconds Time that calls took in workers.")
    lines.append("# TYPE palestra_call_seconds histogram")
    for what, counts in sorted(stats.seconds.items()):
        total = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
            total += count
            lines.append(f'palestra_call_seconds_bucket{{op="{what}",le="{bound}"}} {total}')
        lines.append(f'palestra_call_seconds_sum{{op="{what}"}} {stats.total[what]:.6f}')
        lines.append(f'palestra_call_seconds_count{{op="{what}"}} {total}')
    return "\n".join(lines) + "\n"

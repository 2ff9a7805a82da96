"""Measure the success rates of the expert, random, echo and constant players, and compare them with the specs.

    python benchmarks/rates.py [--ids game:Sudoku-v0-easy] [--players echo constant] [--seeds 1000] [--seconds 60]
    python benchmarks/rates.py --ids math: --seeds 200 --seconds 1 --table

The echo player replies with parts of the observation, and the constant player with the expert's most frequent
actions (`palestra.conformance.players`); both rates are those of the best strategy. `--table` prints the rates of these
two players as catalog entries, and includes the reason if a rate needs one and the catalog already states it.

Seeds are 0, 1, 2, ..., so that a run is repeatable. Intervals are 95% Wilson intervals. The exit code is 1 if a
documented rate is outside its interval, with a tolerance of 0.005 for rounding. A documented rate of 1.0 requires every
seed to be solved. The echo and constant players may be less successful than documented, because a short measurement
may miss their best strategy.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import palestra
from palestra.conformance import Rate, success_rate
from palestra.conformance.rates import Player

ROUNDING = 0.005  # documented rates have two decimals
PLAYERS: tuple[Player, ...] = ("expert", "random", "echo", "constant")


def agrees(stated: float | None, rate: Rate, player: Player) -> bool:
    if stated is None:
        return True
    if player in ("echo", "constant"):
        return stated >= rate.interval()[0] - ROUNDING
    if stated == 1.0:
        return rate.solved == rate.episodes
    low, high = rate.interval()
    return low - ROUNDING <= stated <= high + ROUNDING


def measure(env_id: str, player: Player, *, seeds: int, seconds: float) -> dict[str, Any] | None:
    """Return the success rate of a player, or None if the env has no such player."""
    spec = palestra.get_spec(env_id)
    stated: float | None = getattr(spec, f"{player}_success")
    with palestra.make(env_id) as env:
        if player in ("expert", "constant"):
            env.reset(seed=0)
            if env.expert_action() is None:
                return None
        rate = success_rate(env, player, range(seeds), seconds=seconds)
    return {
        "id": env_id,
        "player": player,
        "solved": rate.solved,
        "episodes": rate.episodes,
        "interval": rate.interval(),
        "stated": stated,
        "agrees": agrees(stated, rate, player),
    }


def table_entry(env_id: str, *, seeds: int, seconds: float) -> str:
    """Return the rates of the echo and constant players as a catalog entry."""
    rows = [measure(env_id, player, seeds=seeds, seconds=seconds) for player in ("echo", "constant")]
    rates = [0.0 if row is None else round(row["solved"] / row["episodes"], 3) for row in rows]
    reason = palestra.get_spec(env_id).rates_reason
    entry = (*rates, reason) if reason else tuple(rates)
    return f"    {json.dumps(env_id.partition(':')[2])}: {json.dumps(entry).replace('[', '(').replace(']', ')')},"


def format_row(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    stated = "  none" if row["stated"] is None else f"{row['stated']:6.2f}"
    verdict = "" if row["agrees"] else "  OUTSIDE"
    rate = row["solved"] / row["episodes"]
    return f"{row['id']:34}{row['player']:9}{stated}{rate:9.4f}  {low:.4f} to {high:.4f}{row['episodes']:9}{verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--ids", nargs="+", metavar="ID", help="Environments to measure, by ids or parts of ids (default: all games)."
    )
    parser.add_argument(
        "--players", nargs="+", choices=PLAYERS, default=PLAYERS, help="Players to measure (default: all)."
    )
    parser.add_argument("--seeds", type=int, default=1000, help="Episodes per player (default 1000).")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="Time limit per id and player, in seconds (default 60)."
    )
    parser.add_argument("--json", action="store_true", help="Print all rates as JSON.")
    parser.add_argument(
        "--table", action="store_true", help="Print the rates of the echo and constant players as catalog entries."
    )
    args = parser.parse_args()
    candidates = palestra.list_envs() if args.ids else palestra.list_envs("game")
    ids = [env_id for env_id in candidates if not args.ids or any(part in env_id for part in args.ids)]
    ids = [env_id for env_id in ids if not palestra.get_spec(env_id).needs_data]
    if args.table:
        for env_id in ids:
            print(table_entry(env_id, seeds=args.seeds, seconds=args.seconds), flush=True)
        return 0
    rows = []
    if not args.json:
        print(f"{'':34}{'player':9}{'stated':>6}{'rate':>9}  {'95% interval':18}{'episodes':>7}")
    for env_id in ids:
        for player in args.players:
            row = measure(env_id, player, seeds=args.seeds, seconds=args.seconds)
            if row is None:
                continue
            rows.append(row)
            if not args.json:
                print(format_row(row), flush=True)
    outside = [row for row in rows if not row["agrees"]]
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        print(
            f"{len(outside)} of {len(rows)} documented rates are outside their interval"
            if outside
            else "all documented rates agree"
        )
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())

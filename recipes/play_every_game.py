"""Play every game with the expert and the random player, and show how often each wins."""

from __future__ import annotations

import argparse
import sys
from time import monotonic

import palestra
from palestra.checks import success_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="episodes a game and player (100)")
    parser.add_argument("--seconds", type=float, default=1.5, metavar="S", help="at most, a game and player (1.5)")
    args = parser.parse_args()

    env = palestra.make("game:Sudoku-v0-easy")
    print(f"{env.reset(seed=7)[0]}\n\n> {env.expert_action()}")
    print(f"\n{env.step(env.expert_action() or '').observation}\n\n... and so on. Now all of them:\n")

    ids = palestra.list_envs("game")
    width = max(map(len, ids))
    print(f"{'game':<{width}}  {'expert':>8}  {'random':>8}  episodes")
    started = monotonic()
    for env_id in ids:
        env = palestra.make(env_id)
        expert, rand = (
            success_rate(env, player, range(args.episodes), seconds=args.seconds) for player in ("expert", "random")
        )
        print(f"{env_id:<{width}}  {expert.value:>8.1%}  {rand.value:>8.1%}  {expert.episodes} / {rand.episodes}")
        sys.stdout.flush()
    print(f"\n{len(ids)} games in {monotonic() - started:.0f} s. Play one yourself: .venv/bin/palestra play {ids[0]}")


if __name__ == "__main__":
    main()

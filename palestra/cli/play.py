"""`palestra play ID`: a person, the expert or the random player, in the terminal."""

from __future__ import annotations

import argparse
import sys

from palestra.cli.options import add_keywords, keywords
from palestra.core import Env
from palestra.errors import BadValue
from palestra.parsing import boxed, last_boxed
from palestra.registry import make
from palestra.types import Step, text_of
from palestra.wrappers import Record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the environment, such as game:Sudoku-v0-easy")
    parser.add_argument("--agent", choices=["human", "expert", "random"], default="human", help="who plays (human)")
    parser.add_argument("--seed", type=int, help="the episode to play; drawn by default, and shown")
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="how many in a row (1)")
    parser.add_argument("--record", metavar="FILE", help="append the episodes to a JSONL file")
    add_keywords(parser)


def run(args: argparse.Namespace) -> int:
    if args.episodes < 1:
        raise BadValue(f"--episodes is at least 1, got {args.episodes}")
    env = make(args.id, seed=args.seed, **keywords(args.set))
    if args.record:
        env = Record(env, args.record)
    solved = played = 0
    with env:
        for _ in range(args.episodes):
            step = _episode(env, args.agent)
            if step is None:
                print("Left the game.")
                break
            played += 1
            solved += bool(step.info["success"])
    if played > 1:
        print(f"\nsolved {solved} of {played}")
    return 0


def _episode(env: Env, agent: str) -> Step | None:
    """Play to the end; None where the person left."""
    observation, info = env.reset()
    name = env.spec.id if env.spec is not None else repr(env)
    print(f"--- {name}, seed {info['seed']}\n")
    print(text_of(observation))
    if agent == "human":
        print("\n(Type your move; the \\boxed{} is added for you. :hint asks the expert, :quit leaves.)")
    total = 0.0
    while True:
        action = _ask(env) if agent == "human" else _choose(env, agent)
        if action is None:
            return None
        step = env.step(action)
        total += step.reward
        print(f"\n{text_of(step.observation)}")
        if step.done:
            ending = "solved" if step.info["success"] else "truncated" if step.truncated else "not solved"
            print(f"\n{ending}, return {total:g}")
            return step


def _choose(env: Env, agent: str) -> str:
    action = env.sample_random_action() if agent == "random" else env.expert_action()
    if action is None:
        raise BadValue(f"{env!r} has no expert; try --agent random")
    print(f"\n> {action}")
    return action


def _ask(env: Env) -> str | None:
    while True:
        sys.stdout.write("\n> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line or line.strip() in (":q", ":quit"):
            return None
        text = line.rstrip("\n")
        if text.strip() == ":hint":
            print(f"the expert would play {env.expert_action() or 'nothing: there is no expert here'}")
        elif text.strip():
            boxes = last_boxed(env.example_action()) is not None
            return boxed(text.strip()) if boxes and last_boxed(text) is None else text

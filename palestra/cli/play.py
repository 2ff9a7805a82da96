"""`palestra play ENV`: play an environment in the terminal, or watch the expert or a random player."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap

from palestra.cli.env_options import (
    NAME_HELP,
    add_env_kwargs,
    add_import,
    add_timeouts,
    add_tools_and_wrappers,
    env_factory,
)
from palestra.core import Env
from palestra.errors import BadValue
from palestra.parsing import boxed, last_boxed
from palestra.progress import phase
from palestra.seeding import check_seed
from palestra.threads import call_with_timeout
from palestra.types import Step, finite_reward, text_of

HELP = (
    "Type your action; \\boxed{} is added for you. :hint shows the expert's action, :help shows this text, :quit exits."
)
BOLD, DIM, RED, GREEN = "1", "2", "31", "32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", help=f"Environment to play: {NAME_HELP}.")
    parser.add_argument(
        "--agent",
        choices=["human", "expert", "random"],
        default="human",
        help="Player: human (you), expert (the reference solver) or random (random actions) (default: human).",
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="Seed for the first episode (default: a random seed, which is printed)."
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=1,
        metavar="N",
        help="Number of episodes to play in sequence (default: 1).",
    )
    parser.add_argument(
        "--record", metavar="FILE", help="JSONL file to append the episodes to (default: episodes are not recorded)."
    )
    options = parser.add_argument_group("environment")
    add_import(options)
    add_env_kwargs(options)
    add_tools_and_wrappers(options)
    add_timeouts(options)


def run(args: argparse.Namespace) -> int:
    if args.episodes < 1:
        raise BadValue(f"--episodes must be at least 1, got {args.episodes}")
    with phase(f"starting {args.env}"):
        env = call_with_timeout("building the environment", env_factory(args.env, args), args.reset_timeout)
    seed = None if args.seed is None else check_seed(args.seed)
    if args.record:
        from palestra.wrappers import Record

        env = Record(env, args.record)
    solved = played = 0
    with env:
        for _ in range(args.episodes):
            # Only the first reset passes a seed; the seeds of later episodes are derived from it.
            step, seed = _play_episode(env, args, seed), None
            if step is None:
                print("You quit the game.")
                break
            played += 1
            solved += bool(step.info.get("success"))
    if played > 1:
        print(f"\nsolved {solved} of {played}")
    return 0


def _play_episode(env: Env, args: argparse.Namespace, seed: int | None) -> Step | None:
    """Play one episode and return its last step, or None if the human player quit."""
    with phase("starting the episode"):
        observation, info = call_with_timeout("reset", env.reset, args.reset_timeout, seed)
    name = env.spec.id if env.spec is not None else repr(env)
    print(f"--- {name}, seed {info.get('seed', seed)}\n")
    print(_wrapped(text_of(observation)))
    if args.agent == "human":
        print(_styled(f"\n{HELP}", DIM))
    total = 0.0
    while True:
        action = _read_action(env) if args.agent == "human" else _choose_action(env, args.agent)
        if action is None:
            return None
        step = call_with_timeout("step", env.step, args.step_timeout, action)
        total += finite_reward(step.reward)
        print(f"\n{_wrapped(text_of(step.observation))}")
        if step.done:
            solved = bool(step.info.get("success"))
            outcome = "solved" if solved else "truncated" if step.truncated else "not solved"
            print(_styled(f"\n{outcome}, return {total:g}", GREEN if solved else RED))
            return step


def _choose_action(env: Env, agent: str) -> str:
    action = env.sample_random_action() if agent == "random" else env.expert_action()
    if action is None:
        raise BadValue(f"{env!r} has no expert; try --agent random")
    print(_styled(f"\n> {action}", BOLD))
    return action


def _read_action(env: Env) -> str | None:
    """Return the human player's action, or None to quit; commands and unreadable lines do not use up a turn."""
    while True:
        sys.stdout.write("\n> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        text = line.rstrip("\n")
        command = text.strip().lower()
        if not line or command in (":q", ":quit", ":exit"):
            return None
        if command == ":hint":
            action = env.expert_action()
            print("This environment has no expert." if action is None else f"The expert would play {action}")
        elif command in (":h", ":help", ":?"):
            print(HELP)
        elif command.startswith(":"):
            print(f"There is no command {text.strip()}. {HELP}")
        elif command:
            action = boxed(text.strip()) if _expects_box(env) and last_boxed(text) is None else text
            if env.unwrapped.can_read(action):
                return action
            print(f"Your action could not be read, so it does not use a turn. A valid action is {env.example_action()}")


def _wrapped(text: str) -> str:
    """Wrap lines that are longer than the terminal's width; leave other output unchanged."""
    if not sys.stdout.isatty():
        return text
    width = max(40, shutil.get_terminal_size().columns - 1)
    lines = [
        textwrap.wrap(line, width, break_long_words=False) if len(line) > width else [line] for line in text.split("\n")
    ]
    return "\n".join(part for wrapped in lines for part in wrapped)


def _styled(text: str, style: str) -> str:
    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


def _expects_box(env: Env) -> bool:
    try:
        return last_boxed(env.example_action()) is not None
    except BadValue:  # the environment has no example action
        return False

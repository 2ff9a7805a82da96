"""`palestra play ENV`: play an environment in the terminal, or watch the expert or a random player."""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress

from palestra.cli.env_options import (
    NAME_HELP,
    add_env_kwargs,
    add_import,
    add_timeouts,
    add_tools_and_wrappers,
    env_factory,
)
from palestra.cli.terminal import fitted
from palestra.core import Env
from palestra.errors import BadValue
from palestra.parsing import boxed, last_boxed
from palestra.progress import phase
from palestra.seeding import check_seed
from palestra.threads import call_with_timeout
from palestra.types import Step, finite_reward, text_of

COMMANDS = ":hint shows the expert's action, :help shows this text, :quit exits."
BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
_TAG = re.compile(r"\s*<(\w+)>")


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
    _show(f"--- {name}, seed {info.get('seed', seed)}\n", BOLD)
    _show(text_of(observation))
    if args.agent == "human":
        _show(f"\n{_help(env)}", DIM)
    total = 0.0
    while True:
        action = _read_action(env) if args.agent == "human" else _choose_action(env, args.agent)
        if action is None:
            return None
        step = call_with_timeout("step", env.step, args.step_timeout, action)
        total += finite_reward(step.reward)
        first, newline, rest = text_of(step.observation).partition("\n")
        _show(f"\n{first}", YELLOW if "invalid" in step.info else "")
        if newline:
            _show(rest)
        if step.done:
            solved = bool(step.info.get("success"))
            outcome = "solved" if solved else "truncated" if step.truncated else "not solved"
            _show(f"\n{outcome}, return {total:g}", GREEN if solved else RED)
            return step


def _choose_action(env: Env, agent: str) -> str:
    action = env.sample_random_action() if agent == "random" else env.expert_action()
    if action is None:
        raise BadValue(f"{env!r} has no expert; try --agent random")
    _show(f"\n> {action}", BOLD)
    return action


def _read_action(env: Env) -> str | None:
    """Return the human player's action, or None to quit; commands and unreadable lines do not use up a turn."""
    while True:
        text = _read_text()
        if text is None:
            print()
            return None
        command = text.strip().lower()
        if command in (":q", ":quit", ":exit"):
            return None
        if command == ":hint":
            action = env.expert_action()
            _show("This environment has no expert." if action is None else f"The expert would play {action}", CYAN)
        elif command in (":h", ":help", ":?"):
            _show(_help(env), DIM)
        elif command.startswith(":"):
            _show(f"There is no command {text.strip()}. {_help(env)}", YELLOW)
        elif command:
            action = boxed(text.strip()) if _expects_box(env) and last_boxed(text) is None else text
            if env.can_read(action):
                return action
            example = _example(env)
            note = f" A valid action is {example}" if example else ""
            _show(f"Your action could not be read, so it does not use a turn.{note}", YELLOW)


def _read_text() -> str | None:
    """Return the text that the human player types, or None at its end; a code block may have several lines."""
    text = _read_line("> ", gap=True)
    while text is not None and _is_open(text):
        line = _read_line("... ")
        text = None if line is None else f"{text}\n{line}"
    return text


def _read_line(prompt: str, *, gap: bool = False) -> str | None:
    if gap:
        print()
    if sys.stdin.isatty() and sys.stdout.isatty():
        with suppress(ImportError):  # lines can be edited and repeated where readline is installed
            import readline  # noqa: F401
        try:
            return input(prompt)
        except EOFError:
            return None
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _is_open(text: str) -> bool:
    """Return whether the text contains a fence or a leading tag, such as <python>, that is not closed yet."""
    tag = _TAG.match(text)
    return text.count("```") % 2 == 1 or (tag is not None and f"</{tag[1]}>" not in text)


def _help(env: Env) -> str:
    start = "Type your action; \\boxed{} is added for you." if _expects_box(env) else "Type your action."
    return f"{start} {COMMANDS}"


def _show(text: str, style: str = "") -> None:
    """Print a text; in a terminal, wrap lines that are longer than its width, and color them."""
    text = fitted(text)
    colored = style and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print(f"\x1b[{style}m{text}\x1b[0m" if colored else text)


def _example(env: Env) -> str:
    try:
        return env.example_action()
    except BadValue:  # the environment has no example action
        return ""


def _expects_box(env: Env) -> bool:
    return last_boxed(_example(env)) is not None

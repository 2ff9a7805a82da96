"""Measure the CPU time of building prompts by extending the previous prompt and by rendering every prompt in full.

    python benchmarks/prompts.py [--episodes N] [--rounds N] [--turns N ...] [--json]

`Renderer(shortcuts=True)` analyzes the chat template (palestra/agents/template.py) and extends a prompt by the ids of
the new message alone. `Renderer(shortcuts=False)` renders the whole conversation in every turn. The benchmark verifies
that both return the same ids. Whole rollouts (`collect` with a number-guessing environment and a scripted engine) are
measured with both renderers as well. Times are CPU milliseconds per turn, medians over alternating rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from statistics import median
from time import process_time
from typing import Any

import palestra
from palestra.agents.conversation import TokenConversation
from palestra.agents.render import Renderer
from palestra.engines import ScriptedEngine
from palestra.engines.base import Completion
from palestra.engines.default_model import default_tokenizer

TASK = "Guess the number between 1 and 1000000000. Write your guess in \\boxed{}. " * 3
REPLY = "The interval is large, so I try the numbers one after the other: \\boxed{7}"
OBSERVATION = "Your guess 7 is too low. The number is between 8 and 1000000000. Guess again."

# Like reasoning models' templates, it searches messages for strings and iterates over the history twice.
REASONING_TEMPLATE = r"""
{%- set last = namespace(index=messages | length - 1) %}
{%- for message in messages %}
  {%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}
    {%- set last.index = loop.index0 %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- set text = message.content %}
  {%- if message.role == 'assistant' and '</think>' in text and loop.index0 < last.index %}
    {%- set text = text.split('</think>')[-1].lstrip('\n') %}
  {%- endif %}
  {{- '<|im_start|>' ~ message.role ~ '\n' ~ text ~ '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
"""


def converse(renderer: Renderer, turns: int, reply_ids: list[int]) -> list[list[int]]:
    """Build the prompts for one episode."""
    conversation = TokenConversation(renderer)
    prompt = conversation.open([conversation.message("user", TASK)])
    prompts = []
    for turn in range(turns):
        conversation.send(prompt)
        prompts.append(prompt.ids)
        conversation.record(
            Completion(
                ids=reply_ids, logprobs=[], text=REPLY, finish="stop", version=0, prompt_ids=conversation.prompt_ids
            )
        )
        if turn + 1 < turns:
            prompt = conversation.next(conversation.message("user", f"{OBSERVATION} Turn {turn}."))
    return prompts


def prompt_ms(renderer: Renderer, turns: int, episodes: int, reply_ids: list[int]) -> float:
    """Return the CPU milliseconds per turn for building prompts."""
    start = process_time()
    for _ in range(episodes):
        converse(renderer, turns, reply_ids)
    return (process_time() - start) / (episodes * turns) * 1e3


def rollout_ms(tokenizer: Any, renderer: Renderer, turns: int, episodes: int) -> float:
    """Return the CPU milliseconds per turn for a whole rollout; the scripted engine itself takes almost no time."""
    level = {"min_number": 1, "max_number": 10**9, "max_turns": turns}
    agent = palestra.agents.ChatAgent(ScriptedEngine(lambda _: REPLY, tokenizer=tokenizer, blind=True))
    agent._renderers = {"[]": renderer}  # "[]" is the cache key of an agent without tools

    async def play() -> int:
        result = await palestra.rollout.collect(
            agent, "game:GuessTheNumber-v0-easy", kwargs=level, episodes=episodes, concurrency=32, seed=0
        )
        return sum(len(trajectory.turns) for trajectory in result.trajectories)

    start = process_time()
    played = asyncio.run(play())
    return (process_time() - start) / played * 1e3


def measure(template: str | None, episodes: int, rounds: int, lengths: list[int]) -> dict[int, dict[str, float]]:
    tokenizer = default_tokenizer()
    if template is not None:
        tokenizer.chat_template = template
    reply_ids = [*tokenizer.encode(REPLY, add_special_tokens=False), tokenizer.eos_token_id]
    extend, render = Renderer(tokenizer), Renderer(tokenizer, shortcuts=False)
    table: dict[int, dict[str, float]] = {}
    for turns in lengths:
        if converse(extend, turns, reply_ids) != converse(render, turns, reply_ids):
            raise SystemExit("the two ways of building a prompt give different ids")
        figures = [
            (
                prompt_ms(extend, turns, episodes, reply_ids),
                prompt_ms(render, turns, episodes, reply_ids),
                rollout_ms(tokenizer, extend, turns, episodes),
                rollout_ms(tokenizer, render, turns, episodes),
            )
            for _ in range(rounds)
        ]
        names = ("extend_ms", "render_ms", "rollout_extend_ms", "rollout_render_ms")
        row = {name: median(column) for name, column in zip(names, zip(*figures, strict=True), strict=True)}
        row["ratio"] = row["render_ms"] / row["extend_ms"]
        row["rollout_ratio"] = row["rollout_render_ms"] / row["rollout_extend_ms"]
        table[turns] = row
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--episodes", type=int, default=40, help="Episodes per measurement (default: 40).")
    parser.add_argument("--rounds", type=int, default=3, help="Rounds per measurement (default: 3).")
    parser.add_argument("--turns", type=int, nargs="+", default=[5, 10, 20, 30], help="Numbers of turns per episode.")
    parser.add_argument("--json", action="store_true", help="Print the results as JSON.")
    args = parser.parse_args()
    report = {
        name: measure(template, args.episodes, args.rounds, args.turns)
        for name, template in (("default", None), ("reasoning", REASONING_TEMPLATE))
    }
    if args.json:
        print(json.dumps(report, indent=1))
        return 0
    print("CPU milliseconds per turn     prompts alone           whole rollout")
    print(f"{'template':<12}{'turns':>6}" + f"{'extend':>9}{'render':>8}{'ratio':>7}" * 2)
    for name, table in report.items():
        for turns, row in table.items():
            print(
                f"{name:<12}{turns:>6}"
                f"{row['extend_ms']:>9.3f}{row['render_ms']:>8.3f}{row['ratio']:>7.1f}"
                f"{row['rollout_extend_ms']:>9.3f}{row['rollout_render_ms']:>8.3f}{row['rollout_ratio']:>7.1f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

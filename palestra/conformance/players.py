"""Players without skill: the echo player replies with parts of the observation, the constant player with fixed actions.

Each player has several strategies, and its success rate is that of its best strategy. A high rate means that rewards
can be earned without solving the task.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from palestra.core import Env
from palestra.parsing import boxed
from palestra.types import Observation, text_of

MAX_PART_LENGTH = 2_000  # maximum length of a part of an observation that is used as a reply
CONSTANTS = 4  # number of frequent expert actions that the constant player tries

Strategy = Callable[[Env, Observation], str]  # returns the action for an observation
Extract = Callable[[str], str | None]

_NUMBER = re.compile(r"-?\d+(?:[.,/]\d+)*")
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?")
_EXPRESSION = re.compile(r"[(\d-][-\d\s+*/^().·×÷−]*[\d)]")  # noqa: RUF001  # questions contain these symbols
_CALL = re.compile(r"\b[a-z]{1,6}\([^()\n]{1,80}\)")
_EQUATION = re.compile(r"[^\s.?!:][^\n.?!:]*=[^\n.?!:]*[^\s.?!:]")
_QUOTED = re.compile(r"\"([^\"\n]{1,80})\"|(?<!\w)'([^'\n]{1,80})'(?!\w)|`([^`\n]{1,80})`|\*\*([^*\n]{1,80})\*\*")
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,80})\]")
_BEFORE_OR = re.compile(r"([\w'-]+(?: [A-Z][\w'-]*)*),? or \w")
_AFTER_OR = re.compile(r"\bor ([\w'-]+(?: [A-Z][\w'-]*)*)")
_ITEM = re.compile(r"^\s*(?:[-*]|\(?[A-Za-z0-9]{1,2}[.):])\s+(.+)$", re.M)
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)\b[A-Z][\w'-]+(?: (?:of |the |de )*[A-Z][\w'-]+)*")
_LINE = re.compile(r"\S[^\n]*")
_QUESTION = re.compile(r"[^.?!:\n]+\?")
_FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.S)
_TAG = re.compile(r"<([a-z]+)>[^<]*</\1>\s*$")
_ARGUMENT = re.compile(r"^([a-z_]+)\[.*\]$", re.S)


def _first(pattern: re.Pattern[str]) -> Extract:
    def first(text: str) -> str | None:
        match = pattern.search(text)
        return None if match is None else _group(match)

    return first


def _last(pattern: re.Pattern[str]) -> Extract:
    def last(text: str) -> str | None:
        match = None
        for match in pattern.finditer(text):  # noqa: B007  # only the last match is used
            pass
        return None if match is None else _group(match)

    return last


def _longest(pattern: re.Pattern[str]) -> Extract:
    return lambda text: max(map(_group, pattern.finditer(text)), key=len, default=None)


def _group(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), match.group())


def _numbers(choose: Callable[[list[str]], str]) -> Extract:
    def extract(text: str) -> str | None:
        numbers = _NUMBER.findall(text)
        return choose(numbers) if len(numbers) > 1 else None

    return extract


def _value(number: str) -> float:
    match = _DECIMAL.match(number)  # "3.5" of "3.5.1"
    return float(match.group()) if match is not None else 0.0


# Parts of an observation that the echo player replies with.
PARTS: dict[str, Extract] = {
    "whole text": str,
    "first number": _first(_NUMBER),
    "last number": _last(_NUMBER),
    "largest number": _numbers(lambda numbers: max(numbers, key=_value)),
    "smallest number": _numbers(lambda numbers: min(numbers, key=_value)),
    "sum of the numbers": _numbers(lambda numbers: " + ".join(numbers[:9])),
    "list of the numbers": _numbers(lambda numbers: ", ".join(numbers[:9])),
    "expression": _longest(_EXPRESSION),
    "function call": _longest(_CALL),
    "equation": _longest(_EQUATION),
    "first quotation": _first(_QUOTED),
    "last quotation": _last(_QUOTED),
    "first text in brackets": _first(_BRACKETED),
    "last text in brackets": _last(_BRACKETED),
    "first list item": _first(_ITEM),
    "last list item": _last(_ITEM),
    "first name": _first(_NAME),
    "last name": _last(_NAME),
    "first alternative": _first(_BEFORE_OR),
    "last alternative": _last(_AFTER_OR),
    "first line": _first(_LINE),
    "last line": _last(_LINE),
    "last question": _last(_QUESTION),
    "first program": _first(_FENCED),
    "last program": _last(_FENCED),
}


def echo_reply(env: Env, observation: Observation, part: str, number: int = 0) -> str:
    """Return a reply with this part of the observation, or the example action if the observation has no such part.

    `number` selects one of the environment's formats, such as `search[...]` or `click[...]`.
    """
    example = env.example_action()
    text = _question(text_of(observation), example)
    answer = (PARTS[part](text) or "").strip()
    return _formats(example)[number](answer) if 0 < len(answer) <= MAX_PART_LENGTH else example


def echo_strategies(env: Env) -> list[Strategy]:
    """Return one strategy for each observation part and action format; `env` must have been reset."""

    def strategy(part: str, number: int) -> Strategy:
        return lambda env, observation: echo_reply(env, observation, part, number)

    return [strategy(part, number) for number in range(len(_formats(env.example_action()))) for part in PARTS]


def constant_strategies(actions: Iterable[Sequence[str]]) -> list[Strategy]:
    """Return strategies that always repeat one action, using the actions that the expert takes most often.

    `actions` contains the expert's actions in each of several episodes. The first and last actions in an episode
    are counted separately, because the last action is often the answer.
    """
    episodes = [episode for episode in actions if episode]
    counts = (
        Counter(episode[0] for episode in episodes),
        Counter(episode[-1] for episode in episodes),
        Counter(action for episode in episodes for action in episode),
    )
    frequent = dict.fromkeys(action for count in counts for action, _ in count.most_common(CONSTANTS))

    def strategy(action: str) -> Strategy:
        return lambda env, observation: action  # noqa: ARG005

    return [strategy(action) for action in frequent]


def _question(text: str, example: str) -> str:
    """Return the text without the paragraphs that explain the action format."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if example not in part]
    return "\n\n".join(paragraphs) if paragraphs else text


def _formats(example: str) -> list[Callable[[str], str]]:
    """Return functions that write an answer in the environment's formats, which its example action shows."""
    if "\\boxed{" in example:
        return [boxed]
    if "```" in example:
        return [lambda part: f"```python\n{part}\n```"]
    for pattern, form, other in ((_TAG, "<{0}>{1}</{0}>", "answer"), (_ARGUMENT, "{0}[{1}]", "click")):
        match = pattern.search(example)
        if match is not None:
            return [partial(form.format, name) for name in dict.fromkeys((match[1], other))]
    return [str]

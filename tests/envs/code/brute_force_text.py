"""Slow solutions to the algorithmic problems on strings."""

from __future__ import annotations

import re
from functools import cache as memoize
from typing import Any

from tests.envs.code.brute_force import Choices, pieces, subsets


def alignment(c: Choices, a: str, b: str) -> Any:
    @memoize
    def edit(i: int, j: int) -> Any:
        if i == len(a) or j == len(b):
            return c["p"] * (len(a) - i + len(b) - j)
        replaced = edit(i + 1, j + 1) + (0 if a[i] == b[j] else c["q"])
        return min(replaced, edit(i + 1, j) + c["p"], edit(i, j + 1) + c["p"])

    def spelled(text: str) -> list[str]:
        return ["".join(text[i] for i in chosen) for chosen in subsets(len(text))]

    if c["goal"] == "edit":
        return edit(0, 0)
    if c["goal"] == "embeddings":
        return spelled(a).count(b)
    if c["goal"] == "block":
        parts = [a[i:j] for i in range(len(a) + 1) for j in range(i, len(a) + 1)]
        return max(len(part) for part in parts if part in b)
    common = max(len(part) for part in set(spelled(a)) & set(spelled(b)))
    return common if c["goal"] == "common" else len(a) + len(b) - common


def palindromes(c: Choices, text: str) -> Any:
    def mirrored(part: str) -> bool:
        return part == part[::-1] and (len(part) % 2 == 1 or not c["odd"])

    parts = [text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)]
    if c["goal"] in ("subsequence", "insertions"):
        chosen = ("".join(text[i] for i in some) for some in subsets(len(text)))
        longest = max(len(part) for part in chosen if part == part[::-1])
        return longest if c["goal"] == "subsequence" else len(text) - longest
    if c["goal"] == "count":
        return sum(map(mirrored, parts))
    if c["goal"] == "longest":
        return max((len(part) for part in parts if mirrored(part)), default=0)
    return min(len(way) for way in pieces(text) if all(map(mirrored, way)))


def segmentation(c: Choices, text: str, words: list[str]) -> Any:
    ways = [len(way) for way in pieces(text) if all(part in words and len(part) <= c["longest"] for part in way)]
    if c["goal"] == "ways":
        return len(ways)
    return (min if c["goal"] == "fewest" else max)(ways, default=-1)


def digit_split(c: Choices, digits: str) -> Any:
    def valid(part: str) -> bool:
        return str(int(part)) == part and c["low"] <= int(part) <= c["high"]

    ways = [way for way in pieces(digits) if all(map(valid, way))]
    if c["goal"] == "ways":
        return len(ways)
    if c["goal"] == "fewest":
        return min(map(len, ways), default=-1)
    return max((sum(map(int, way)) for way in ways), default=-1)


def expression(c: Choices, text: str) -> Any:
    """Evaluate the innermost parentheses first, replacing one operation at a time with its value."""
    number = r"(-?\d+)"
    levels = {"usual": ["*", "+-"], "equal": ["+-*"], "reversed": ["+-", "*"]}[c["order"]]

    def value(flat: str) -> str:
        tokens = re.findall(r"(?<![\d)])-?\d+|[-+*^]|\d+", flat)
        for level in [*(["^"] if c["power"] else []), *levels]:
            i = 1
            while i < len(tokens):
                if tokens[i] in level:
                    a, b = int(tokens[i - 1]), int(tokens[i + 1])
                    pick = {"max": max, "min": min, "": max}[c["power"]]
                    result = {"+": a + b, "-": a - b, "*": a * b, "^": pick(a, b)}[tokens[i]]
                    tokens[i - 1 : i + 2] = [str(result)]
                else:
                    i += 2
        assert re.fullmatch(number, tokens[0])
        return str(tokens[0])

    while "(" in text:
        text = re.sub(r"\(([^()]*)\)", lambda match: value(match[1]), text)
    return int(value(text)) % int(c["modulus"])


def repetition(c: Choices, text: str) -> Any:
    while "[" in text:
        text = re.sub(r"(\d+)\[([abc]*)\]", lambda match: int(match[1]) * match[2], text)
    middle = "_abc".index(text[len(text) // 2])
    return {"length": len(text), "count": text.count(c["letter"]), "character": middle}[c["goal"]]


def bracket_repair(c: Choices, text: str) -> Any:
    def balanced(part: str) -> bool:
        while "()" in part:
            part = part.replace("()", "")
        return not part

    kept = max((chosen for chosen in subsets(len(text)) if balanced("".join(text[i] for i in chosen))), key=len)
    parts = [text[i:j] for i in range(len(text)) for j in range(i, len(text) + 1)]
    left = list(enumerate(text))
    i = 0
    while i + 1 < len(left):
        if left[i][1] + left[i + 1][1] == "()":
            del left[i : i + 2]
            i = 0
        else:
            i += 1
    cost = sum(c["q"] if bracket == "(" else c["p"] for _, bracket in left)
    return {
        "deletions": len(text) - len(kept),
        "longest": max((len(part) for part in parts if balanced(part)), default=0),
        "unmatched": [index for index, _ in left],
        "cost": cost,
    }[c["goal"]]

"""Find the program in a reply with fenced code blocks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

PYTHON = ("", "py", "python", "python3")  # language labels of blocks that may contain a Python program; "" for no label

_FENCE_LINE = re.compile(r"^[ \t]{0,3}```[ \t]*([^\n`]*)$", re.M)
_INDENTED_FENCE_LINE = re.compile(r"^[ \t]*```[ \t]*([^\n`]*)$", re.M)
_DEFINED = re.compile(
    r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|^(\w+)(?:[ \t]*:[^=\n]{1,80})?[ \t]*=(?!=)", re.M
)
_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)[ \t]*\(")
_STATEMENT = re.compile(
    r"^[ \t]*(?:(?:def|class|import|from|for|while|if|with|try|return|async|assert|@)(?![\w=])"
    r"|[A-Za-z_][\w.,\[\]\"' \t]*(?:[-+*/%&|^]|//|\*\*|<<|>>)?=(?!=)|[A-Za-z_][\w.]*\()",
    re.M,
)
_EXAMPLE = re.compile(
    r"\b(?:examples?|usage|outputs?|inputs?|samples?|tests?|test cases?|prints?|returns?|results?)\b[^\n]*$", re.I
)
_PROGRAM = re.compile(r"\b(?:program|solution|code|function|implementation|answer|version)\b", re.I)


class Block(NamedTuple):
    """A closed fenced block."""

    code: str
    before: str  # the last line of text before the block


def last_code(text: str, languages: Collection[str] = PYTHON) -> str | None:
    """Return the content of the last closed fenced block in one of `languages` ("" for no language), or None."""
    code: str | None = None
    for block in _blocks(text, languages):
        code = block.code
    return code


def read_program(reply: str, names: Collection[str] = ()) -> str | None:
    """Return the Python program in a reply, or None if there is no closed fenced block.

    The program is the last block that defines one of `names`, the functions that will be called. If there is none, it
    is the last block that is a program and not an example of its use or its output; models often append such blocks.
    """
    blocks = list(_blocks(reply.rpartition("</think>")[2], PYTHON)) or list(_blocks(reply, PYTHON))
    if not blocks:  # accept an indented fence only if there is no other, since a program may contain one in a docstring
        blocks = list(_blocks(reply, PYTHON, _INDENTED_FENCE_LINE))
    if len(blocks) < 2:
        return blocks[0].code if blocks else None
    wanted = set(names)
    if wanted:
        for block in reversed(blocks):
            if not wanted.isdisjoint(_defined(block.code)):
                return block.code
    programs = [index for index, block in enumerate(blocks) if _STATEMENT.search(block.code)]
    first_definition: dict[str, int] = {}
    for index in programs:
        for name in _defined(blocks[index].code):
            first_definition.setdefault(name, index)
    for index in reversed(programs):
        code, before = blocks[index]
        if index > programs[0] and _EXAMPLE.search(before) and not _PROGRAM.search(before):
            continue  # an example of the program above
        called = set(_CALLED.findall(code)) - _defined(code)
        # A block that calls a function from an earlier block is an example of its use.
        if not any(first_definition.get(name, index) < index for name in called):
            return code
    return blocks[-1].code


def _blocks(text: str, languages: Collection[str], fences: re.Pattern[str] = _FENCE_LINE) -> Iterator[Block]:
    opened: tuple[str, int, int] | None = None
    for fence in fences.finditer(text):
        label = fence[1].strip().lower()
        if opened is None or label:  # a fence with a language always opens a block
            opened = (label, fence.start(), fence.end())
            continue
        if opened[0] in languages:
            before = text[max(0, opened[1] - 300) : opened[1]].rstrip().rpartition("\n")[2]
            yield Block(text[opened[2] : fence.start()].strip("\n"), before)
        opened = None


def _defined(code: str) -> set[str]:
    """Return the names that a program defines at the start of a line, or as methods."""
    return {function or variable for function, variable in _DEFINED.findall(code)}


def fenced(code: str, language: str = "python") -> str:
    """Return `code` as a fenced block."""
    return f"```{language}\n{code}\n```"

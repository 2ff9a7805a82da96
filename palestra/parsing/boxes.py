"""Find the answer in a reply, in a box or between tags, and shorten texts quoted in messages."""

from __future__ import annotations

import re

TAIL = 8_000  # braces are matched within this many characters, which bounds the running time

_BOX = "\\boxed{"
_ODD_BOX = re.compile(r"\\(?:boxed[ \t]{1,3}|fbox[ \t]{0,3})\{")  # `\boxed {x}` and `\fbox{x}`
_BRACES = re.compile(r"\\boxed\{|[{}]")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last closed `\boxed{...}`, or None. Braces are matched within TAIL characters."""
    _, box, rest = text.rpartition(_BOX)
    if not box:
        return None
    content, closed, _ = rest.partition("}")
    if closed and "{" not in content:
        return content
    depth = 1
    for brace in _BRACES.finditer(rest, 0, TAIL):
        depth += -1 if brace[0] == "}" else 1
        if depth == 0:
            return rest[: brace.start()]
    return _last_closed(text[-TAIL:])


def _last_closed(text: str) -> str | None:
    """Like `last_boxed`, but for a text whose last box is not closed; match all braces from the left."""
    span: tuple[int, int] | None = None
    opened: list[tuple[bool, int]] = []
    for brace in _BRACES.finditer(text):
        if brace[0] != "}":
            opened.append((brace[0] != "{", brace.end()))
        elif opened:
            boxed, start = opened.pop()
            if boxed and (span is None or start > span[0]):
                span = (start, brace.start())
    return None if span is None else text[span[0] : span[1]]


def boxed(answer: object) -> str:
    r"""Return `answer` inside `\boxed{}`."""
    return f"\\boxed{{{answer}}}"


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """Return the content of the last closed `<tag>...</tag>`, or None."""
    before, closed, _ = text.rpartition(f"</{tag}>")
    if not closed:
        return None
    _, opened, content = before.rpartition(f"<{tag}>")
    return content.strip() if opened else None


def clip(text: str, limit: int = 40) -> str:
    """Return `text` truncated and without control characters, for quoting in a message."""
    if len(text) > limit:
        text = text[:limit] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def read_answer(reply: str) -> str | None:
    r"""Return the answer in a reply: the last `\boxed{...}` or, if there is none, the last `<answer>...</answer>`.

    An answer after `</think>` takes precedence over answers before it. The content is returned as written; `plain`
    removes the markup that models put around it.
    """
    _, box, rest = reply.rpartition(_BOX)
    if not box:
        return _read_answer(reply)
    content, closed, after = rest.partition("}")
    if closed and "{" not in content and (not after or "</think>" not in after):
        return content  # fast path
    return _read_answer(reply)


def _read_answer(reply: str) -> str | None:
    if "\\fbox" in reply or "\\boxed " in reply:
        reply = _ODD_BOX.sub(lambda _: _BOX, reply)
    _, thought, tail = reply.rpartition("</think>")
    for text in (tail, reply) if thought else (reply,):
        answer = last_boxed(text)
        if answer is None:
            answer = last_tagged(text)
        if answer is not None:
            return answer
    return None

"""Remove the markup that models habitually write around an answer or an action."""

from __future__ import annotations

import re

MAX_CHARS = 4_000  # maximum text length; longer texts are returned unchanged
MAX_LAYERS = 8  # layers of markup that are removed

_FONT_NAMES = (
    "text|textbf|textit|textrm|textsf|texttt|textnormal|emph|mathrm|mathbf|mathit|mathsf|mathtt|mathnormal|boldsymbol|"
    "bm|mbox|hbox|underline|operatorname\\*?"
)
_FONT = re.compile(rf"\\(?:{_FONT_NAMES})\s*\{{([^{{}}]*)\}}")
_NEGATIVE_SPACE = re.compile(r"\\!")
_SPACE = re.compile(r"\\(?:[,;:> ]|(?:quad|qquad|thinspace|enspace)(?![A-Za-z])\s*)|~")
_SIZE = re.compile(r"\\(?:left|right|bigl|bigr|big|Big|displaystyle|textstyle)(?![A-Za-z])\s*")
_ARROW = re.compile(r"\\(?:to|rightarrow|longrightarrow|Rightarrow)(?![A-Za-z])")
_ESCAPED = re.compile(r"\\([%$#&_])")
_WRAPPED = re.compile(rf"\\(?:boxed|fbox|{_FONT_NAMES})\s*\{{")
_BRACE = re.compile(r"\\.|[{}]", re.S)
_FENCE = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\n(.*?)\n?[ \t]*```|```([^`\n]*)```", re.S)
_INLINE_MATH = re.compile(r"(?<!\\)\$(?=\S)([^$]*[^\s\\])\$")
_MARK = re.compile(r"[\\$*_`\"'{<:=.\u201c\u2018\u00ab]| is ")  # a text without these marks contains no markup
_PAIRS = (
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("***", "***"),
    ("**", "**"),
    ("__", "__"),
    ("*", "*"),
    ("_", "_"),
    ("`", "`"),
    ('"', '"'),
    ("'", "'"),
    ("\u201c", "\u201d"),
    ("\u2018", "\u2019"),
    ("\u00ab", "\u00bb"),
    ("<answer>", "</answer>"),
    ("<action>", "</action>"),
    ("<b>", "</b>"),
)
_LABEL = re.compile(
    r"[*_]{0,2}(?:(?:so|therefore|thus|hence),?\s+)?(?:(?:the|my|our)\s+)?(?:(?:final|correct|next|best)\s+){0,2}"
    r"(?:(?:answer|action|move|command|guess|choice)(?:[*_]{0,2}\s*[:=]|\s+is\b(?:[*_]{0,2}\s*:)?)"
    r"|(?:result|output|solution)[*_]{0,2}\s*:)(?:[*_]{1,2}(?=\s))?\s*",
    re.I,
)


def plain(text: str) -> str:
    r"""Return an answer without the markup that models habitually write around it.

    This removes fonts (`\text{up}`, `\mathbf{x}`), math delimiters (`$2$`, `\(2\)`), boxes, emphasis (`**x**`), code
    marks, enclosing quotes, tags, labels ("Answer:"), LaTeX spaces and a final period. Words and numbers are preserved.
    """
    text = text.strip()
    if len(text) > MAX_CHARS or _MARK.search(text) is None:
        return text
    if "\\" in text:
        text = _without_latex(text)
    text = text.replace("{,}", ",")
    if text.count("$") == 2:
        text = _INLINE_MATH.sub(r"\1", text)
    for _ in range(MAX_LAYERS):
        before = text
        text = _without_layer(text)
        if text == before:
            break
    return text


def _without_latex(text: str) -> str:
    for _ in range(MAX_LAYERS):
        before = text
        text = _FONT.sub(_content, text)
        if text == before:
            break
    text = _NEGATIVE_SPACE.sub("", text)
    text = _SPACE.sub(" ", text)
    text = _SIZE.sub("", text)
    return _ARROW.sub("->", text)


def _content(font: re.Match[str]) -> str:
    r"""Return the content of a font command, separated from a number before it, as in `5\text{kg}`."""
    content, start = font[1], font.start()
    return f" {content}" if content[:1].isalpha() and start and font.string[start - 1].isdigit() else content


def _without_layer(text: str) -> str:
    """Remove the outermost layer of markup."""
    text = text.strip()
    if text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    fence = _FENCE.fullmatch(text)
    if fence is not None:
        return fence[1] if fence[2] is None else fence[2]
    for opening, closing in _PAIRS:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner and closing not in inner:
                return inner
    label = _LABEL.match(text)
    if label is not None and label.end() < len(text):
        return text[label.end() :]
    if text.startswith("**") and text.endswith("**") and len(text) > 4:
        return text[2:-2]  # the text contains powers such as x**2
    wrapped = _WRAPPED.match(text)
    if wrapped is not None and _closing_brace(text, wrapped.end()) == len(text) - 1:
        return text[wrapped.end() : -1]
    if text.startswith("{") and text.endswith("}") and not set("{},;:\"'") & set(text[1:-1]):
        return text[1:-1]  # a TeX group, not a set or an object
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _closing_brace(text: str, start: int) -> int:
    """Return the position of the brace that closes a group whose content starts at `start`, or -1."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return -1

"""Write a stored episode as one HTML file that needs no server: text, boards, images and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from palestra.errors import ParsingFailed
from palestra.reports.html import image, table, utf8, whole_page
from palestra.viewer.episode_json import picture

LABELS = {"env": "environment", "tool": "tool", "agent": "agent"}


def shared_page(run: str, at: str, data: Mapping[str, Any], shown: Mapping[str, Any]) -> bytes:
    """Return the page for a stored episode; `shown` is its description by `episode_json.episode`."""
    count = len(shown["turns"])
    title = f"{shown['env_id']}, seed {shown['seed']}"
    facts = [
        ("outcome", str(shown["outcome"])),
        ("return", f"{shown['return']:g}"),
        ("turns", str(count)),
        ("run", run),
        ("episode", at),
        *((str(key), str(value)) for key, value in (shown["meta"] or {}).items()),
    ]
    parts = [f"<header><h1>{escape(title)}</h1></header>", table([name for name, _ in facts], [[v for _, v in facts]])]
    for i, turn in enumerate(shown["turns"]):
        parts.append(_observation(data, turn["shown"]))
        numbers = [f"turn {i + 1}", f"reward {turn['reward']:g}"]
        if turn["advantage"] is not None:
            numbers.append(f"advantage {turn['advantage']:+.3g}")
        calls = "".join(f"<pre>{escape(_call(call))}</pre>" for call in turn["tool_calls"])
        parts.append(_message("agent", f"<pre>{escape(turn['text'])}</pre>{calls}", ", ".join(numbers)))
    parts.append(_observation(data, shown["final"]))
    failure = shown["failure"]
    if failure:
        text = f"{failure['kind']} at the {failure['boundary']}: {failure['message']}"
        parts.append(_message("env", f'<pre class="bad">{escape(text)}</pre>', "failure"))
    return utf8(whole_page(title, parts))


def file_name(shown: Mapping[str, Any]) -> str:
    """Return a name for the downloaded file that is safe in a header and on every file system."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', str(shown['env_id']))}-{re.sub(r'[^0-9]', '', shown['seed'])[:20]}.html"


def _observation(data: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    parts = []
    for part in shown["parts"]:
        if part["type"] == "image":
            parts.append(_image(data, part))
        elif part["text"]:
            parts.append(f"<pre>{escape(part['text'])}</pre>")
    return _message(shown["role"], "".join(parts), "")


def _image(data: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    try:
        body, kind = picture(data, part["turn"], part["part"])
    except ParsingFailed as err:
        return f"<pre>({escape(str(err))})</pre>"
    return image(body, kind)


def _message(role: str, content: str, note: str) -> str:
    words = ", ".join(part for part in (LABELS.get(role, role), note) if part)
    style = "agent" if role == "agent" else "env"
    return f'<div class="message {style}"><i>{escape(words)}</i>{content}</div>'


def _call(call: Mapping[str, Any]) -> str:
    return f"{call.get('name') or call.get('tool') or 'tool'}: {call.get('arguments') or call.get('code') or ''}"

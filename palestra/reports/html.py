"""Build self-contained HTML pages from sections, tables, tiles and episodes, without dependencies."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from palestra.errors import StoreFailed
from palestra.types import Observation

if TYPE_CHECKING:
    from palestra.rollout.types import Trajectory

STYLE = Path(__file__).with_name("page.css")
LONGEST = 4000  # maximum characters displayed per message
MAX_IMAGE_BYTES = 4_000_000  # per episode
MEDIA_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def whole_page(title: str, sections: Sequence[str]) -> str:
    """Return a document with embedded styles; empty sections are omitted."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def section(title: str, content: str, style: str = "") -> str:
    return f'<section><h2>{escape(title)}</h2><div class="{style}">{content}</div></section>' if content else ""


def tiles(facts: Sequence[tuple[str, str, str]]) -> str:
    """Render tuples of name, value and detail as cards; cards without a value are omitted."""
    cards = "".join(
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(more)}</small></div>'
        for name, value, more in facts
        if value
    )
    return f'<div class="tiles">{cards}</div>' if cards else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, named: bool = False) -> str:
    """Render a right-aligned table; with `named`, the first column is left-aligned."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="{"named" if named else "figures"}">{inside}</table></div>'


def episode(trajectory: Trajectory) -> str:
    """Render an episode as a collapsed conversation with its outcome as the title."""
    ending = "solved" if trajectory.success else "truncated" if trajectory.truncated else "not solved"
    count = len(trajectory.turns)
    head = (
        f'<summary><b class="{"good" if trajectory.success else "bad"}">{ending}</b> {escape(trajectory.env_id)}, '
        f"seed {trajectory.seed}, {count} turn{'s' * (count != 1)}, return {trajectory.total_reward:g}</summary>"
    )
    parts, left = [], MAX_IMAGE_BYTES
    for turn in trajectory.turns:
        shown, left = _observation(turn.observation, left)
        parts.append(_message("env", shown, ""))
        parts.append(_message("agent", _text(turn.action.text), f"{turn.reward:+g}" if turn.reward else ""))
    parts.append(_message("env", _observation(trajectory.final_observation, left)[0], ""))
    return f"<details>{head}{''.join(parts)}</details>"


def mixed(played: Sequence[Trajectory], count: int) -> list[Trajectory]:
    """Select `count` episodes, alternating between solved and unsolved ones, from different tasks if possible."""
    chosen: list[Trajectory] = []
    rest = list(played)
    while rest and len(chosen) < count:
        seen = {t.seed for t in chosen}
        wanted = len(chosen) % 2 == 0  # start with a solved episode
        best = min(rest, key=lambda t: (bool(t.success) is not wanted, t.seed in seen))
        chosen.append(best)
        rest.remove(best)
    return chosen


def utf8(text: str) -> bytes:
    """Encode text as UTF-8; unpaired surrogates, which an agent or environment may produce, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def replace_file(path: Path, data: bytes) -> Path:
    """Replace `path` atomically, so that a reader gets either the old or the new content."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as err:
        raise StoreFailed(f"cannot write {path}: {err}") from err
    return path


def media_type(image: bytes) -> str | None:
    """Return the media type of an image, or None; only types that cannot contain scripts are accepted."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in MEDIA_TYPES.items() if image.startswith(start)), None)


def image(content: bytes, kind: str) -> str:
    """Render an image whose content is embedded in the page."""
    source = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return f'<img alt="environment observation" style="max-width: 100%" src="{source}">'


def _observation(observation: Observation, left: int) -> tuple[str, int]:
    """Render texts and images, and return the number of bytes left for further images."""
    if isinstance(observation, str):
        return _text(observation), left
    parts = []
    for part in observation:
        if part["type"] == "text":
            parts.append(_text(part["text"]))
            continue
        kind = media_type(part["image"])
        if kind is None or len(part["image"]) > left:
            parts.append(_text("[image]"))
        else:
            parts.append(image(part["image"], kind))
            left -= len(part["image"])
    return "".join(parts), left


def _text(text: str) -> str:
    return f"<pre>{escape(text if len(text) <= LONGEST else text[:LONGEST] + ' ...')}</pre>"


def _message(who: str, content: str, note: str) -> str:
    mark = f"<i>{escape(note)}</i>" if note else ""
    return f'<div class="message {who}">{mark}{content}</div>'

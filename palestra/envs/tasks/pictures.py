"""What a column of pictures holds -> encoded pictures, and a question with them in their places."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.errors import BadValue, DataMissing
from palestra.types import ImagePart, Observation, Part, TextPart

PLACE = "<image>"  # where a question wants its pictures, as most data sets write it


def pictures(value: Any, folder: Path | None) -> list[bytes]:
    """None, a picture or several: bytes, `{"bytes", "path"}` as `datasets` stores them, a path, or one of Pillow's."""
    if value is None:
        return []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [picture for one in value for picture in pictures(one, folder)]
    return [_picture(value, folder)]


def _picture(value: Any, folder: Path | None) -> bytes:
    if isinstance(value, Mapping):
        inside = value.get("bytes")
        value = value.get("path") if inside is None else inside
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        place = Path(value) if folder is None else folder / value
        if not place.is_file():
            raise DataMissing(f"there is no picture {place}")
        return place.read_bytes()
    if hasattr(value, "save"):
        buffer = io.BytesIO()
        value.save(buffer, format="PNG")
        return buffer.getvalue()
    raise BadValue(f"a picture is bytes, a path or an image, got {type(value).__name__}")


def illustrated(text: str, images: Sequence[bytes]) -> Observation:
    """The text with each picture at its `<image>`; those without a place come first."""
    if not images:
        return text
    pieces = text.split(PLACE)
    spare = max(0, len(images) - (len(pieces) - 1))
    parts: list[Part] = [ImagePart(type="image", image=image) for image in images[:spare]]
    rest = list(images[spare:])
    for i, piece in enumerate(pieces):
        if i:
            if rest:
                parts.append(ImagePart(type="image", image=rest.pop(0)))
            else:
                piece = PLACE + piece  # more places than pictures: the text stays as it was
        if piece:
            parts.append(TextPart(type="text", text=piece))
    return parts

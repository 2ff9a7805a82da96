"""Load the images in a dataset row and insert them into the question."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.errors import BadValue, DataMissing
from palestra.types import ImagePart, Observation, Part, TextPart

PLACEHOLDER = "<image>"  # marks the position of an image in a question, as in most datasets


def load_images(value: Any, folder: Path | None) -> list[bytes]:
    """Return the encoded images in a cell, which contains None, one image or a list of images.

    An image is bytes, a path, a Pillow image, or a dictionary `{"bytes": ..., "path": ...}` as stored by `datasets`.
    """
    if value is None:
        return []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [image for element in value for image in load_images(element, folder)]
    return [_load_image(value, folder)]


def _load_image(value: Any, folder: Path | None) -> bytes:
    if isinstance(value, Mapping):
        content = value.get("bytes")
        value = value.get("path") if content is None else content
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        path = Path(value) if folder is None else folder / value
        if not path.is_file():
            raise DataMissing(f"the image {path} does not exist")
        return path.read_bytes()
    if hasattr(value, "save"):
        buffer = io.BytesIO()
        value.save(buffer, format="PNG")
        return buffer.getvalue()
    raise BadValue(f"an image must be bytes, a path or a Pillow image, got {type(value).__name__}")


def insert_images(text: str, images: Sequence[bytes]) -> Observation:
    """Replace each `<image>` placeholder in the text with an image; surplus images are placed before the text."""
    if not images:
        return text
    pieces = text.split(PLACEHOLDER)
    unplaced = max(0, len(images) - (len(pieces) - 1))
    parts: list[Part] = [ImagePart(type="image", image=image) for image in images[:unplaced]]
    placed = list(images[unplaced:])
    for i, piece in enumerate(pieces):
        if i:
            if placed:
                parts.append(ImagePart(type="image", image=placed.pop(0)))
            else:
                piece = PLACEHOLDER + piece  # leave surplus placeholders in the text
        if piece:
            parts.append(TextPart(type="text", text=piece))
    return parts

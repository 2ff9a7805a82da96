"""English word lists from SCOWL (see data/LICENSE.scowl); the list for each word length is loaded on first use."""

from __future__ import annotations

from functools import cache
from pkgutil import get_data  # importlib.resources takes ten times as long to import

from palestra.errors import BadValue

SHORTEST, LONGEST = 3, 10  # minimum and maximum word length in the lists

_IGNORED = str.maketrans("", "", " \t\r\n,.-'\"[]()")


@cache
def common(length: int) -> tuple[str, ...]:
    """Return the everyday words with `length` letters, sorted."""
    return _read("common", length)


@cache
def rare(length: int) -> tuple[str, ...]:
    """Return the rarer words with `length` letters, sorted; none of them is in `common`."""
    return _read("rare", length)


@cache
def real(length: int) -> frozenset[str]:
    """Return every word with `length` letters that a player may use: common, rare, inflected and other words."""
    return frozenset((*common(length), *rare(length), *_read("other", length)))


def _read(name: str, length: int) -> tuple[str, ...]:
    if not SHORTEST <= length <= LONGEST:
        return ()
    data = get_data(__package__, f"data/{name}_{length}.txt")
    assert data is not None  # noqa: S101  # the files are part of the package
    return tuple(data.decode("ascii").split())


def check_length(length: object) -> None:
    """Raise BadValue unless `length` is None or a word length for which there are lists."""
    if length is not None and not (isinstance(length, int) and SHORTEST <= length <= LONGEST):
        raise BadValue(f"word_length must be a whole number from {SHORTEST} to {LONGEST}, got {length!r}")


def read_word(text: str) -> str | None:
    """Return `text` in lower case without spaces and punctuation, or None if the rest is not only letters."""
    if not (text.isascii() and text.isalpha()):
        text = text.translate(_IGNORED)
        if not (text.isascii() and text.isalpha()):
            return None
    return text.lower()

"""The embedded English words, from SCOWL (see data/LICENSE.scowl); a length is read when it is first asked for."""

from __future__ import annotations

from functools import cache
from pkgutil import get_data  # a tenth of the import time of importlib.resources

from palestra.errors import BadValue

SHORTEST, LONGEST = 3, 10  # letters of the words there are

_FILLERS = str.maketrans("", "", " \t\r\n,.-'\"[]()")


@cache
def common(length: int) -> tuple[str, ...]:
    """Everyday words of that many letters, sorted."""
    return _read("common", length)


@cache
def rare(length: int) -> tuple[str, ...]:
    """Real but rarer words of that many letters, sorted; none of them is in `common`."""
    return _read("rare", length)


@cache
def real(length: int) -> frozenset[str]:
    """Every word of that many letters that a player may use: `common`, `rare`, their inflections and more."""
    return frozenset((*common(length), *rare(length), *_read("other", length)))


def _read(name: str, length: int) -> tuple[str, ...]:
    if not SHORTEST <= length <= LONGEST:
        return ()
    data = get_data(__package__, f"data/{name}_{length}.txt")
    assert data is not None  # noqa: S101  # the files are part of the package
    return tuple(data.decode("ascii").split())


def check_length(length: object) -> None:
    """BadValue unless there are words of that length, or `length` is None."""
    if length is not None and not (isinstance(length, int) and SHORTEST <= length <= LONGEST):
        raise BadValue(f"word_length is a whole number from {SHORTEST} to {LONGEST}, got {length!r}")


def read_word(text: str) -> str | None:
    """The letters a-z in `text`, in lower case; blanks, commas, quotes and the like may part them, else None."""
    if not (text.isascii() and text.isalpha()):
        text = text.translate(_FILLERS)
        if not (text.isascii() and text.isalpha()):
            return None
    return text.lower()

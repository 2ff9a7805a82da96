"""Convert any value, such as an environment's `info`, to JSON data of limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

# Limits for one value; anything beyond them is cut off.
MAX_DEPTH = 50
MAX_ITEMS = 100_000
MAX_CHARACTERS = 8 << 20
MAX_BITS = 4_096  # larger integers are written in hexadecimal, because Python limits the length of decimal ones


def plain_data(value: Any, *, show: Callable[[Any], str] = repr) -> Any:
    """Return `value` as JSON data; `show` converts objects that JSON cannot represent."""
    if not isinstance(value, Mapping):
        return _Converter(MAX_ITEMS, MAX_CHARACTERS, show).of(value)
    items, characters = MAX_ITEMS, MAX_CHARACTERS
    data: dict[str, Any] = {}
    for key, item in value.items():
        # An item may use half of the remaining budget, so that a huge item does not displace the others.
        converter = _Converter(items // 2, characters // 2, show)
        name = converter.key(key)
        data[name] = converter.of(item, (id(value),))
        items = items - items // 2 + converter.items - 1
        characters = characters - characters // 2 + converter.characters
        if items <= 1:
            break
    return data


class _Converter:
    """Converts a value and counts the items and characters that may still be added.

    An environment may put anything into `info`: references to itself, deep nesting, or lists that share their items
    and grow exponentially when written out.
    """

    def __init__(self, items: int, characters: int, show: Callable[[Any], str]) -> None:
        self.items = items
        self.characters = characters
        self._show = show

    def of(self, value: Any, inside: tuple[int, ...] = ()) -> Any:
        """Convert a value; `inside` contains the ids of the collections around it."""
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= MAX_BITS else hex(value)
        if isinstance(value, str):
            return self._text(value)
        if id(value) in inside:
            return "... (refers to itself)"
        if len(inside) >= MAX_DEPTH:
            return "... (nested too deeply)"
        inside = (*inside, id(value))
        if isinstance(value, Mapping):
            return {self.key(key): self.of(item, inside) for key, item in self._limited(value.items())}
        if isinstance(value, (list, tuple)):
            return [self.of(item, inside) for item in self._limited(value)]
        if isinstance(value, (set, frozenset)):
            return sorted((self.of(item, inside) for item in self._limited(value)), key=repr)
        return self._text(self._shown(value))

    def key(self, key: Any) -> str:
        return self._text(key if isinstance(key, str) else self._shown(key))

    def _shown(self, value: Any) -> str:
        try:
            return self._show(value)
        except Exception as err:  # noqa: BLE001  # the class belongs to the environment
            return f"<{type(value).__name__} whose repr raises {type(err).__name__}>"

    def _limited(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self.items <= 0:
                break
            self.items -= 1
            yield item

    def _text(self, text: str) -> str:
        length = len(text)
        if length > self.characters:
            text = f"{text[: self.characters]}... ({length} characters)"
        self.characters = max(0, self.characters - length)
        return text

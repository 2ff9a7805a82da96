"""Decode sampled ids to the text of a reply."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from palestra.engines.stop_strings import cut, decoder

SHORT_REPLY = 32  # maximum number of tokens in a reply whose text is cached
MAX_TEXTS = 4096  # maximum number of cached texts


class ReplyText:
    """Decodes replies. The texts of short replies are cached, because in many environments they repeat often."""

    def __init__(self, tokenizer: Any) -> None:
        self._decode = None if tokenizer is None else decoder(tokenizer)
        self._texts: dict[tuple[int, ...], str] = {}

    def read(self, ids: list[int], stop_ids: Collection[int], stops: Sequence[str]) -> tuple[str, bool]:
        """Return the text without the stop token, up to the first stop string, and whether there is a stop string.

        The text is empty without a tokenizer.
        """
        text = self._text(ids[:-1] if ids[-1] in stop_ids else ids)
        return cut(text, stops) if stops else (text, False)

    def _text(self, ids: list[int]) -> str:
        if self._decode is None:
            return ""
        if len(ids) > SHORT_REPLY:
            return self._decode(ids)
        key = tuple(ids)
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            text = self._texts[key] = self._decode(ids)
        return text

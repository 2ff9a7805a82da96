"""Hit, what a search gives back; and hits as the text a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palestra.tools.search.passages import Passage

LONGEST = 4_000  # characters of one passage that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One passage that was found."""

    passage: Passage
    score: float
    number: int | None = field(default=None, compare=False)  # of the passage in a local index


def told(hits: Sequence[Hit]) -> str:
    """As Search-R1 shows them to the models trained with it."""
    if not hits:
        return "No passage fits. Try other words."
    return "\n".join(
        f"Doc {place}(Title: {hit.passage.title}) {_short(hit.passage.text)}" for place, hit in enumerate(hits, 1)
    )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [...]"

"""A short answer and its golds -> a Grade: exact match and token F1 under the normalisation SQuAD made usual.

Case, articles, punctuation and the width of blanks do not count. Unicode is folded first (NFKC, then casefold), so that
"Café" is "CAFÉ" in either spelling of the accent, and punctuation is what Unicode calls punctuation or a symbol that
stands alone. An answer that is nothing but those is compared as it is: "+" is not "-".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.parsing import clip

LONGEST = 20_000  # characters of an answer that are read

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def grade_qa(answer: str, golds: str | Sequence[str], *, threshold: float | None = None) -> Grade:
    """Correct where the answer matches a gold exactly; the score is the best F1 over all golds.

    `threshold`: count as correct from this F1 up.
    """
    every = [golds] if isinstance(golds, str) else list(golds) if isinstance(golds, Sequence) else []
    if not every or not all(isinstance(gold, str) for gold in every):
        raise BadValue(f"golds are strings, at least one, got {golds!r}")
    if threshold is not None and not 0 < threshold <= 1:
        raise BadValue(f"an F1 threshold lies above 0 and up to 1, got {threshold!r}")
    if len(answer) > LONGEST:
        return Grade(correct=False, score=0.0, why=f"an answer of {len(answer)} characters is no short answer")
    said = normalise(answer)
    best, nearest = -1.0, every[0]
    for gold in every:
        wanted = normalise(gold)
        if said == wanted:
            return Grade(correct=True, score=1.0, why=f"{clip(answer)!r} matches {clip(gold)!r}")
        score = _f1(said, wanted)
        if score > best:
            best, nearest = score, gold
    why = f"{clip(answer)!r} is not {clip(nearest)!r}; F1 {best:.2f}"
    if threshold is not None and best >= threshold:
        return Grade(correct=True, score=1.0, why=f"{why} reaches {threshold}")
    return Grade(correct=False, score=min(best, 0.999), why=why)


def exact_match(answer: str, golds: str | Sequence[str]) -> bool:
    """Is the answer one of the golds, once normalised?"""
    said = normalise(answer)
    return any(said == normalise(gold) for gold in ([golds] if isinstance(golds, str) else golds))


def f1(answer: str, gold: str) -> float:
    """The harmonic mean of precision and recall over tokens."""
    return _f1(normalise(answer), normalise(gold))


def normalise(text: str) -> str:
    """Folded, without punctuation and articles, single blanks."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = unicodedata.normalize("NFKC", folded)  # casefold may take apart what was composed
    bare = "".join(c for c in folded if not _is_punctuation(c))
    return " ".join(_ARTICLES.sub(" ", bare).split()) or " ".join(folded.split())


def _is_punctuation(char: str) -> bool:
    return char in _ASCII_PUNCTUATION or (char > "\x7f" and unicodedata.category(char)[0] == "P")


def _f1(said: str, wanted: str) -> float:
    ours, theirs = _tokens(said), _tokens(wanted)
    if not ours or not theirs:
        return float(ours == theirs)
    shared = (Counter(ours) & Counter(theirs)).total()
    return 2 * shared / (len(ours) + len(theirs))


def _tokens(text: str) -> list[str]:
    """Words; in scripts that do not part words by blanks, characters."""
    tokens = []
    for word in text.split():
        if word.isascii():
            tokens.append(word)
        else:
            tokens += [piece for piece in _PIECES.split(word) if piece]
    return tokens


_PIECES = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0002fa1f])")

r"""Grade a short answer by exact match and token F1, with SQuAD's normalization.

Case, articles, punctuation (including Unicode punctuation) and whitespace are ignored. Unicode is normalized (NFKC) and
case-folded, so that "Café" equals "CAFÉ" in either encoding of the accent. An answer that consists only of punctuation
is not normalized, so that "+" differs from "-". Markup such as `\text{}` is removed, and numbers are compared by
value, so that "79,578 inhabitants" and "twenty-one" match 79578 and 21.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.grading.counts import same_count
from palestra.parsing import clip, plain

MAX_CHARS = 20_000  # maximum answer length; longer answers are not graded

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def grade_qa(answer: str, golds: str | Sequence[str], *, threshold: float | None = None) -> Grade:
    """Grade a short answer: it is correct if it equals a gold answer; the score is its highest F1 with any gold answer.

    With a `threshold`, an answer is also correct if its F1 is at least the threshold.
    """
    gold_list = [golds] if isinstance(golds, str) else list(golds) if isinstance(golds, Sequence) else []
    if not gold_list or not all(isinstance(gold, str) for gold in gold_list):
        raise BadValue(f"`golds` must be a string or a non-empty sequence of strings, got {golds!r}")
    if threshold is not None and not 0 < threshold <= 1:
        raise BadValue(f"`threshold` must be above 0 and at most 1, got {threshold!r}")
    if len(answer) > MAX_CHARS:
        return Grade(
            correct=False, score=0.0, why=f"the answer has {len(answer)} characters; the maximum is {MAX_CHARS}"
        )
    normalized = normalize(answer)
    stripped = plain(answer)
    normalized_plain = normalized if stripped == answer or not stripped else normalize(stripped)
    best_score, best_gold = -1.0, gold_list[0]
    for gold in gold_list:
        normalized_gold = normalize(gold)
        if normalized_gold in (normalized, normalized_plain) or _same_forms(stripped, normalized_plain, gold):
            return Grade(correct=True, score=1.0, why=f"{clip(answer)!r} matches {clip(gold)!r}")
        score = _f1(normalized_plain, normalized_gold)
        if score > best_score:
            best_score, best_gold = score, gold
    why = f"{clip(answer)!r} is not {clip(best_gold)!r}; F1 {best_score:.2f}"
    if threshold is not None and best_score >= threshold:
        return Grade(correct=True, score=1.0, why=f"{why} reaches {threshold}")
    return Grade(correct=False, score=min(best_score, 0.999), why=why)


def exact_match(answer: str, golds: str | Sequence[str]) -> bool:
    """Return whether the answer equals one of the gold answers after normalization, without markup, or as a number."""
    return len(answer) <= MAX_CHARS and grade_qa(answer, golds).correct


def _same_forms(answer: str, normalized: str, gold: str) -> bool:
    """Compare an answer with a gold answer, both without markup, as words or as numbers."""
    stripped = plain(gold)
    if stripped != gold and stripped and normalized == normalize(stripped):
        return True
    return same_count(answer, stripped)


def f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over tokens."""
    return _f1(normalize(answer), normalize(gold))


def normalize(text: str) -> str:
    """Normalize Unicode, fold case, remove punctuation and articles, and collapse whitespace."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = unicodedata.normalize("NFKC", folded)  # casefold may decompose characters
    plain = "".join(c for c in folded if not _is_punctuation(c))
    return " ".join(_ARTICLES.sub(" ", plain).split()) or " ".join(folded.split())


def _is_punctuation(char: str) -> bool:
    return char in _ASCII_PUNCTUATION or (char > "\x7f" and unicodedata.category(char)[0] == "P")


def _f1(answer: str, gold: str) -> float:
    answer_tokens, gold_tokens = _tokens(answer), _tokens(gold)
    if not answer_tokens or not gold_tokens:
        return float(answer_tokens == gold_tokens)
    shared = (Counter(answer_tokens) & Counter(gold_tokens)).total()
    return 2 * shared / (len(answer_tokens) + len(gold_tokens))


def _tokens(text: str) -> list[str]:
    """Split a text into words, or into characters if its script has no spaces between words."""
    tokens = []
    for word in text.split():
        if word.isascii():
            tokens.append(word)
        else:
            tokens += [piece for piece in _PIECES.split(word) if piece]
    return tokens


_PIECES = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0002fa1f])")

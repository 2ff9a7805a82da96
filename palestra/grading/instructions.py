"""Check IFEval's 25 verifiable instructions (Zhou et al. 2023), such as "at least 200 words" or "no commas".

The rules, ids and parameter names are the same as in the official checkers. Two parts differ, because the official
versions need downloaded models: sentences and words are found by regular expressions instead of NLTK, and the language
is detected by `palestra.grading.languages` instead of langdetect. Every check takes linear time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.grading.languages import detect_language

_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+(?=\s|$)|\n\s*+|\Z")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|No|Inc|Ltd|[A-Z])\.$")
_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def grade_instructions(
    reply: str, instructions: Sequence[tuple[str, Mapping[str, Any]]], *, loose: bool = False
) -> Grade:
    """Grade a reply: it is correct if it follows all instructions; the score is the fraction followed.

    With `loose`, an instruction also counts as followed if the reply follows it without its first line, its last line,
    or its Markdown asterisks, as in IFEval's loose accuracy.
    """
    replies = _variants(reply) if loose else [reply]
    broken = [
        name
        for name, settings in instructions
        if not any(text.strip() and follows(name, text, settings) for text in replies)
    ]
    score = 1 - len(broken) / len(instructions) if instructions else 1.0
    why = f"does not follow {', '.join(broken)}" if broken else f"follows {len(instructions)} instructions"
    return Grade(correct=not broken, score=score, why=why)


def follows(instruction: str, reply: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a reply follows an instruction; raise BadValue if the instruction is unknown."""
    check = CHECKS.get(instruction)
    if check is None:
        raise BadValue(f"unknown instruction {instruction!r}; known instructions: {', '.join(CHECKS)}")
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        return bool(check(reply, **given))
    except (TypeError, re.error) as err:
        raise BadValue(f"{instruction}: invalid settings {given}: {err}") from err


def _variants(reply: str) -> list[str]:
    lines = reply.split("\n")
    texts = [reply, "\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip()]
    return [variant for text in texts for variant in (text, text.replace("*", ""))]


def _compare(count: int, relation: str, limit: float) -> bool:
    if relation not in ("less than", "at least"):
        raise TypeError(f"relation must be 'less than' or 'at least', got {relation!r}")
    return count < limit if relation == "less than" else count >= limit


# Keywords


def _existence(reply: str, *, keywords: Sequence[str]) -> bool:
    return all(re.search(keyword, reply, re.I) for keyword in keywords)


def _frequency(reply: str, *, keyword: str, frequency: int, relation: str) -> bool:
    return _compare(len(re.findall(keyword, reply, re.I)), relation, frequency)


def _forbidden_words(reply: str, *, forbidden_words: Sequence[str]) -> bool:
    return not any(re.search(rf"\b{word}\b", reply, re.I) for word in forbidden_words)


def _letter_frequency(reply: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compare(reply.lower().count(letter.lower()), let_relation, let_frequency)


# Language and case


def _language(reply: str, *, language: str) -> bool:
    return detect_language(reply) in (language, None)


def _capital(reply: str) -> bool:
    return reply.isupper() and detect_language(reply) in ("en", None)


def _lowercase(reply: str) -> bool:
    return reply.islower() and detect_language(reply) in ("en", None)


def _capital_words(reply: str, *, capital_frequency: int, capital_relation: str) -> bool:
    words = re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", reply)
    return _compare(sum(word.isupper() for word in words), capital_relation, capital_frequency)


# Length


def count_sentences(text: str) -> int:
    """Return the number of sentences; a period after an abbreviation does not end a sentence."""
    count, start = 0, 0
    for end in _SENTENCE_END.finditer(text):
        if end[0].startswith("\n") and end[0].count("\n") < 2:
            continue  # a line break within a paragraph
        sentence = text[start : end.end()]
        if end[0].startswith(".") and end.end() < len(text.rstrip()) and _ABBREVIATION.search(sentence[-12:].rstrip()):
            continue
        count += bool(re.search(r"\w", sentence))
        start = end.end()
    return count


def _sentences(reply: str, *, num_sentences: int, relation: str) -> bool:
    return _compare(count_sentences(reply), relation, num_sentences)


def _words(reply: str, *, num_words: int, relation: str) -> bool:
    return _compare(len(re.findall(r"\w+", reply)), relation, num_words)


def _paragraphs(reply: str, *, num_paragraphs: int) -> bool:
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", reply)]
    if any(not part for part in parts[1:-1]):
        return False
    return sum(bool(part) for part in parts) == num_paragraphs


def _first_word(reply: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    parts = reply.split("\n\n")
    count = sum(bool(part.strip()) for part in parts)
    if nth_paragraph > count or not parts[nth_paragraph - 1].strip():
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return count == num_paragraphs and re.split(r"[.,?!'\"]", word)[0].lower() == first_word.lower()


# Content and format


def _placeholders(reply: str, *, num_placeholders: int) -> bool:
    count = 0
    for line in reply.split("\n"):
        start = line.find("[")
        while start >= 0 and (end := line.find("]", start)) >= 0:
            count += 1
            start = line.find("[", end)
    return count >= num_placeholders


def _postscript(reply: str, *, postscript_marker: str) -> bool:
    patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(patterns.get(postscript_marker, postscript_marker.lower()), reply.lower()) is not None


def _bullets(reply: str, *, num_bullets: int) -> bool:
    lines = [line.strip() for line in reply.split("\n")]
    stars = sum(line.startswith("*") and not line.startswith("**") for line in lines)
    return stars + sum(line.startswith("-") for line in lines) == num_bullets


def _constrained(reply: str) -> bool:
    return any(text in reply for text in _CONSTRAINED)


def _highlights(reply: str, *, num_highlights: int) -> bool:
    single = [part for part in re.findall(r"\*[^\n\*]*\*", reply) if part.strip("*").strip()]
    double = [part for part in re.findall(r"\*\*[^\n\*]*\*\*", reply) if part[2:-2].strip()]
    return len(single) + len(double) >= num_highlights


def _sections(reply: str, *, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"\s?{section_spliter}\s?\d+\s?", reply)) >= num_sections


def _json(reply: str) -> bool:
    text = re.sub(r"^```(?:json)?", "", reply.strip(), flags=re.I).removesuffix("```").strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _title(reply: str) -> bool:
    spans = [(line, line.find("<<"), line.rfind(">>")) for line in reply.split("\n")]
    return any(line[start:end].strip("<> \t") for line, start, end in spans if 0 <= start < end)


# Combinations, start, end and punctuation


def _two_responses(reply: str) -> bool:
    parts = [part.strip() for part in reply.split("******")]
    if any(not part for part in parts[1:-1]):
        return False
    nonempty = [part for part in parts if part]
    return len(nonempty) == 2 and nonempty[0] != nonempty[1]


def _repeat_prompt(reply: str, *, prompt_to_repeat: str) -> bool:
    return reply.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _end(reply: str, *, end_phrase: str) -> bool:
    return reply.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def _quotation(reply: str) -> bool:
    text = reply.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def _no_comma(reply: str) -> bool:
    return "," not in reply


CHECKS: Mapping[str, Callable[..., bool]] = {
    "keywords:existence": _existence,
    "keywords:frequency": _frequency,
    "keywords:forbidden_words": _forbidden_words,
    "keywords:letter_frequency": _letter_frequency,
    "language:response_language": _language,
    "length_constraints:number_sentences": _sentences,
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": _words,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": _placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": _constrained,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": _title,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _repeat_prompt,
    "startend:end_checker": _end,
    "startend:quotation": _quotation,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": _capital,
    "change_case:english_lowercase": _lowercase,
    "punctuation:no_comma": _no_comma,
}

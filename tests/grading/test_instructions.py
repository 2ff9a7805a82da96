"""Test IFEval's instructions on replies that do and do not follow them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.grading.instructions import CHECKS, count_sentences, follows, grade_instructions
from palestra.grading.languages import detect_language

# Instruction, settings, a reply that follows it, a reply that does not.
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["river", "boat"]}, "A Boat on the River.", "A boat on the lake."),
    ("keywords:frequency", {"keyword": "a", "frequency": 3, "relation": "at least"}, "banana", "ban"),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "less than"}, "Go.", "Go, go."),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "Concatenate.", "The cat sat."),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": "at least"}, "Ease", "Cat e"),
    ("language:response_language", {"language": "de"}, "Das ist nicht der Hund.", "This is not the dog."),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "A b. C! D?", "A b. C!"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "Dr. Who is in.",
        "A. B c. D e.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", "one\n***\ntwo\n***\nthree"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two three", "one two"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weather"},
        'First.\n\n"Weather" is next.',
        "First.\n\nThe weather is next.",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] of [city]", "[name]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n\nP. S. One more thing.", "Bye."),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye. P.P.S. More", "Bye. P.S. More"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n- two\n**bold**", "* one"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", "*one*"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<A poem>>\nRoses", "<< >>\nRoses"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say hi. Hi!", "Hi! Say hi."),
    ("startend:end_checker", {"end_phrase": "Any questions?"}, 'So it is. any questions?"', "Any questions? No."),
    ("startend:quotation", {}, ' "quoted" ', '"quoted'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "VERY GOOD day",
        "VERY good day",
    ),
    ("change_case:english_capital", {}, "THE DOG IS HERE.", "The DOG."),
    ("change_case:english_lowercase", {}, "the dog is here.", "The dog."),
    ("punctuation:no_comma", {}, "no comma here", "one, two"),
]


@pytest.mark.parametrize(("name", "settings", "right", "wrong"), CASES)
def test_every_instruction(name: str, settings: dict[str, Any], right: str, wrong: str) -> None:
    padded = {**settings, "unused": None}  # tables contain None for the settings of other instructions
    assert follows(name, right, padded)
    assert not follows(name, wrong, padded)


def test_all_instructions_are_covered() -> None:
    assert {name for name, *_ in CASES} == set(CHECKS)
    assert len(CHECKS) == 25


def test_grade() -> None:
    wanted: list[tuple[str, dict[str, Any]]] = [("punctuation:no_comma", {}), ("detectable_format:title", {})]
    assert grade_instructions("<<T>>\nText", wanted).correct
    half = grade_instructions("Text", wanted)
    assert (half.correct, half.score) == (False, 0.5)
    assert "detectable_format:title" in half.why
    assert not grade_instructions("", wanted).correct


def test_loose_grading_ignores_the_first_line() -> None:
    wanted: list[tuple[str, dict[str, Any]]] = [("punctuation:no_comma", {})]
    reply = "Sure, here it is:\nNo commas here."
    assert not grade_instructions(reply, wanted).correct
    assert grade_instructions(reply, wanted, loose=True).correct


def test_unknown_instructions_and_settings_raise() -> None:
    with pytest.raises(BadValue, match="unknown instruction"):
        follows("keywords:rhyme", "text", {})
    with pytest.raises(BadValue, match="invalid settings"):
        follows("length_constraints:number_words", "text", {"num_words": 3})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("One. Two.", 2),
        ("Mr. Smith met Dr. Who. They left.", 2),
        ("A title\n\nThen text.", 2),
        ("It cost 3.5 dollars... really?!", 2),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert count_sentences(text) == count


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The weather is nice and we are going to the park.", "en"),
        ("Hoy desayunamos en el parque con los niños.", "es"),
        ("Nous allons au parc avec les enfants.", "fr"),
        ("O tempo está bom e não vamos para casa.", "pt"),
        ("Il tempo è bello e andiamo con gli amici della scuola.", "it"),
        ("Pogoda jest ładna i idziemy do parku.", "pl"),
        ("Sää on kaunis ja hän on myös täällä.", "fi"),
        ("Hali ya hewa ni nzuri na watu wa mji huu.", "sw"),
        ("Thời tiết hôm nay rất đẹp và chúng tôi đã đến công viên.", "vi"),
        ("Сегодня хорошая погода, и мы не были дома, это все.", "ru"),
        ("Сьогодні гарна погода, і ми є вдома.", "uk"),  # noqa: RUF001
        ("Днес времето е хубаво и ние ще отидем на разходка.", "bg"),  # noqa: RUF001
        ("الطقس جميل في هذا اليوم", "ar"),
        ("هوا امروز خوب است و ما در پارک هستیم", "fa"),
        ("آج موسم اچھا ہے اور ہم پارک میں ہیں", "ur"),
        ("आज मौसम अच्छा है और हम पार्क में हैं", "hi"),
        ("আজ আবহাওয়া ভালো", "bn"),
        ("今日は天気がいいです", "ja"),
        ("오늘은 날씨가 좋습니다", "ko"),
        ("วันนี้อากาศดี", "th"),
        ("123 !!", None),
    ],
)
def test_languages(text: str, language: str | None) -> None:
    assert detect_language(text) == language


@given(st.text(max_size=200))
def test_any_text_is_accepted(text: str) -> None:
    for name, settings, *_ in CASES:
        follows(name, text, settings)


@pytest.mark.parametrize("piece", ["<", ">", "*", ".", "\n", " ", "[", "A. ", "* ", "<<", "-\n", "a,"])
def test_long_replies_are_checked_in_linear_time(piece: str) -> None:
    reply = (piece * 100_000)[:99_000] + "x"
    started = time.perf_counter()
    for name, settings, *_ in CASES:
        follows(name, reply, settings)
    assert time.perf_counter() - started < 5.0

"""Test the parsing of boxed answers and numbers, and the truncation of texts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.parsing import (
    boxed,
    clip,
    fenced,
    last_boxed,
    plain,
    read_answer,
    read_command,
    read_int,
    read_ints,
    read_number_words,
    read_program,
)

BOX = "\\boxed{"
MEGA = 1 << 20

pieces = st.lists(
    st.sampled_from([BOX, BOX, "{", "}", "}", "\\", "boxed", "\\boxed", "7", "8", "\n", "é"]), max_size=40
)


def reference(text: str) -> str | None:
    """Return the content of the last closed box, by matching braces for each opening box from right to left."""
    for start in reversed(range(len(text))):
        if text.startswith(BOX, start):
            inside = start + len(BOX)
            depth = 1
            for i in range(inside, len(text)):
                depth += {"{": 1, "}": -1}.get(text[i], 0)
                if depth == 0:
                    return text[inside:i]
    return None


@given(pieces.map("".join))
@example("\\boxed{1} or \\boxed{2")
@example("\\boxed{1} or \\boxed{2} or \\boxed{3")
@example("\\boxed{\\boxed{1} \\boxed{")
@example("}}\\boxed{{}}{")
def test_last_boxed_equals_the_reference_on_nested_boxes(text: str) -> None:
    assert last_boxed(text) == reference(text)


@given(st.text())
def test_last_boxed_equals_the_reference_on_any_text(text: str) -> None:
    assert last_boxed(text) == reference(text)


@given(st.text(), pieces.map("".join))
def test_last_boxed_inverts_boxed(before: str, inside: str) -> None:
    open_braces = 0
    for char in inside:
        open_braces += {"{": 1, "}": -1}.get(char, 0)
        if open_braces < 0:
            return
    if open_braces == 0 and BOX not in inside:
        assert last_boxed(f"{before}{boxed(inside)}.") == inside


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("", None),
        ("boxed{1}", None),
        ("\\boxed{}", ""),
        ("\\boxed{1}", "1"),
        ("\\boxed{1} no, \\boxed{2}!", "2"),
        ("\\boxed{1} and then \\boxed{", "1"),
        ("$\\boxed{\\text{A} {B}}$", "\\text{A} {B}"),
        ("\\boxed{outer \\boxed{inner} }", "inner"),
        ("\\boxed{ 3\n}", " 3\n"),
    ],
)
def test_last_boxed(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


# Each case would take hours with a quadratic-time algorithm.
@pytest.mark.parametrize(
    ("text", "length"),
    [
        (BOX * (MEGA // 7), None),
        (BOX + "{" * MEGA, None),
        (BOX + "}" * MEGA, 0),
        (BOX + "{" * (MEGA // 2) + "}" * (MEGA // 2), None),
        (BOX + "{" * 3_000 + "}" * 3_001, 6_000),
        (BOX + "{" * (MEGA // 2) + "}" * (MEGA // 2 + 1), None),  # the nesting exceeds TAIL characters
        (BOX * (MEGA // 14) + "}" * (MEGA // 14), 0),
        ((BOX + "{") * (MEGA // 16) + "}" * (MEGA // 16), 2),
        ("\\boxed{1}" * (MEGA // 9) + BOX, 1),
        (BOX + "x" * MEGA + "}", MEGA),
        ("\\boxed" * (MEGA // 6), None),
        ("\\" * MEGA, None),
        ("{}" * (MEGA // 2), None),
        ("}" * MEGA + "{" * MEGA, None),
    ],
    ids=range(14),
)
def test_a_megabyte_is_parsed_in_linear_time(text: str, length: int | None) -> None:
    content = last_boxed(text)
    assert (None if content is None else len(content)) == length


@given(st.integers(-999_999_999, 999_999_999), st.sampled_from(["{}", " {}", "{}\n", "\t{} "]))
def test_read_int_inverts_formatting(number: int, form: str) -> None:
    assert read_int(form.format(number)) == number


@given(st.text())
@example("²")
@example("\u0663")
@example("9" * 10)
@example("9" * 10_000)
@example("1_0")
@example("+-1")
@example("")
def test_read_int_reads_ascii_digits_only(text: str) -> None:
    number = read_int(text)
    digits = text.strip().lstrip("+-")
    readable = digits.isascii() and digits.isdecimal() and len(digits) < 10 and len(text.strip()) - len(digits) < 2
    assert (number is not None) == readable
    if number is not None:
        assert abs(number) == int(digits)


@given(st.lists(st.integers(-99, 999), min_size=1, max_size=5), st.sampled_from([" ", ",", ", ", "  ", "\t", "\n"]))
def test_read_ints_inverts_formatting(numbers: list[int], between: str) -> None:
    text = between.join(map(str, numbers))
    for written in (text, f"[{text}]", f" ({text}) "):
        assert read_ints(written, len(numbers)) == numbers
        assert read_ints(written, len(numbers) + 1) is None


@pytest.mark.parametrize(
    "text", ["", "1", "1 2 3", "1 x", "1;2", "1.0 2", "1 " + "2" * 10, "\u0661 2", "1 [2", "(1) (2)"]
)
def test_read_ints_rejects_malformed_text(text: str) -> None:
    assert read_ints(text, 2) is None


@given(st.text(st.characters()), st.integers(1, 50))
@example("\x00\x1b[31m\ud800", 40)
def test_clip_limits_length_and_removes_control_characters(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit + 3
    assert clipped.isprintable()
    clipped.encode()  # contains no unpaired surrogates
    if len(text) <= limit and text.isprintable():
        assert clipped == text


@given(pieces.map("".join))
def test_read_answer_equals_last_boxed_without_tags_and_thoughts(text: str) -> None:
    assert read_answer(text) == last_boxed(text)


MARKUP = [
    "\\text{%s}",
    "\\mathbf{%s}",
    "$%s$",
    "\\(%s\\)",
    "**%s**",
    "*%s*",
    "`%s`",
    '"%s"',
    "\\boxed{%s}",
    "Answer: %s",
]
MARKUP += ["%s.", " %s ", "<answer>%s</answer>", "The final answer is %s", "```\n%s\n```"]
WORDS = st.sampled_from(["up", "5", "-3", "Marie Curie", "x+1", "1 2 3"])


@given(WORDS, st.lists(st.sampled_from(MARKUP), max_size=3, unique_by=lambda layer: layer.strip()[0]))
def test_plain_removes_layers_of_markup(word: str, layers: list[str]) -> None:
    text = word
    for layer in layers:
        text = layer % text
    assert plain(text) == word


@given(st.text() | st.lists(st.sampled_from([*"\\{}$*_`'\".:<>= \n", "\\text{", "answer", "is", "```"])).map("".join))
def test_plain_accepts_any_text_and_is_idempotent(text: str) -> None:
    once = plain(text)
    assert len(once) <= len(text) + 2  # an arrow may be longer than \\to
    assert plain(plain(once)) == plain(once)


@given(
    st.text() | st.lists(st.sampled_from(["Action:", "\n", "```", "<action>", "</action>", BOX, "}", "a"])).map("".join)
)
def test_read_command_accepts_any_text(text: str) -> None:
    assert "\n" not in read_command(text)


UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(number: int) -> str:
    if number < 0:
        return f"minus {in_words(-number)}"
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" and {in_words(number % size)}" if number % size else ""
            return f"{in_words(number // size)} {name}{rest}"
    if number < 20:
        return [*UNITS.split(), "eighteen", "nineteen"][number]
    return TENS.split()[number // 10 - 2] + (f"-{in_words(number % 10)}" if number % 10 else "")


@given(st.integers(-(10**12) + 1, 10**12 - 1))
@example(0)
@example(1_000_001)
def test_number_words(number: int) -> None:
    assert read_number_words(in_words(number)) == number


@pytest.mark.parametrize("text", ["", "and", "two two", "ten five", "hundred", "twenty zero", "one thousand million x"])
def test_other_words_are_not_numbers(text: str) -> None:
    assert read_number_words(text) is None


# Each case would take minutes with a quadratic-time algorithm.
@pytest.mark.parametrize(
    "text",
    [
        "```python\nx\n```\n" * 20_000,
        "".join(f"```python\ndef f{n}(): pass\n```\n" for n in range(10_000)),
        "```python\n" + "a " * 200_000 + "\n```\n```\nb\n```",
        "```python\n" + "a" * 500_000 + "\n```\n```\n" + " " * 500_000 + "\n```",
        "```\n" * 100_000,
    ],
    ids=range(5),
)
def test_programs_are_found_in_linear_time(text: str) -> None:
    assert read_program(text) is None or read_program(text, ["f"]) is not None
    read_command(text)


def test_a_single_block_is_the_program_in_any_form() -> None:
    for code in ("", "2", "SELECT 1", "print(1)", "    x"):
        assert read_program(f"Example output:\n{fenced(code)}") == code


def test_indented_fences_are_read_only_if_there_are_no_others() -> None:
    assert read_program("```python\nx = 1\n    ```") == "x = 1"
    documented = 'def f():\n    """\n    ```\n    f()\n    ```\n    """'
    assert read_program(fenced(documented)) == documented

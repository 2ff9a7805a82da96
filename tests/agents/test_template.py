"""Test the static analysis of chat templates, which finds the strings that a template searches for in messages."""

from __future__ import annotations

import pytest

from palestra.agents.render import Renderer
from palestra.agents.template import template_tests
from tests.agents.families import FAMILIES, tokenizer_of

VARIABLES = {"tools": None, "add_generation_prompt": True}
LOOP = "{% for message in messages %}{{ message.role + ':' + message.content }}BODY{% endfor %}"


def read(body: str) -> tuple[set[str], set[str]] | None:
    tests = template_tests(LOOP.replace("BODY", body), variables=VARIABLES)
    return None if tests is None else (set(tests.within), set(tests.whole))


@pytest.mark.parametrize(
    ("body", "within"),
    [
        ("", set()),
        ("{% if '</think>' in message.content %}x{% endif %}", {"</think>"}),
        ("{% set c = message['content']|trim %}{% if c.startswith('<a>') or 'b' not in c %}x{% endif %}", {"<a>", "b"}),
        ("{% set ns = namespace(c='') %}{% set ns.c = message.content %}{{ ns.c.split('|')[-1].strip('\\n') }}", {"|"}),
        ("{% macro m(t) %}{{ t }}{% endmacro %}{% if 'x' in m(message.content)|trim %}y{% endif %}", {"x"}),
        ("{% set t %}{{ message.content }}{% endset %}{% if 'x' in t %}y{% endif %}", {"x"}),
        ("{{ message.content.replace('a', 'b') }}", {"a"}),
        ("{% if message.get('content').endswith('z') %}y{% endif %}", {"z"}),
        ("{% if message.content %}x{% else %}{{ 'no' if message.content is string }}{% endif %}", set()),
        ("{% if tools is not none and message == messages[-1] %}x{% endif %}", set()),  # not reached without tools
        ("{% if message.tool_calls %}{{ message.content[0] }}{% endif %}", set()),  # plain messages have no tool calls
        ("{% if message.role == 'user' and (loop.index0 % 2) == 1 and messages|length > 3 %}x{% endif %}", set()),
        ("{% if message.role == 'function' %}{{ message.content[0] }}{% endif %}", set()),  # no message has that role
        ("{% generation %}{{ message.content }}{% endgeneration %}{% if loop.first %}{% break %}{% endif %}", set()),
    ],
)
def test_finds_searched_strings(body: str, within: set[str]) -> None:
    assert read(body) == (within, set())


def test_finds_compared_texts() -> None:
    assert read("{% if message.content == 'ping' or message.content != ' pong' %}x{% endif %}") == (
        set(),
        {"ping", "pong"},
    )


@pytest.mark.parametrize(
    "body",
    [
        "{% if message.content|length > 100 %}long{% endif %}",
        "{{ message.content[:5] }}",
        "{% if message.content == messages[-1].content %}again{% endif %}",
        "{% if message == messages[-1] %}last{% endif %}",
        "{{ message.content.upper() }}",
        "{{ message.content|upper }}",
        "{{ message.content|truncate(9) }}",
        "{% for letter in message.content %}{{ letter }}{% endfor %}",
        "{{ message.content.split('\\n')[0] }}",
        "{{ message.content.strip('\"') }}",
        "{% if message.content in 'abc' %}x{% endif %}",
        "{% if message.content is lower %}x{% endif %}",
        "{{ messages|selectattr('content', 'equalto', 'x')|list|length }}",
        "{% filter upper %}{{ message.content }}{% endfilter %}",
        "{{ '%s' % message.content }}",
        "{% include 'other' %}",
        "{% if %}",
    ],
)
def test_unsupported_templates_return_none(body: str) -> None:
    assert read(body) is None


def test_thinking_template_tests_for_its_tags() -> None:
    tests = Renderer(tokenizer_of("qwen3")).tests
    assert tests is not None
    assert tests.within == {"<think>", "</think>", "<tool_response>", "</tool_response>"}


@pytest.mark.parametrize("name", [name for name in FAMILIES if "think" not in name])
def test_families_that_extend_their_prompts_have_a_separator(name: str) -> None:
    assert Renderer(tokenizer_of(name)).separator(system=False, role="user") is not None


def test_separator_is_verified_on_random_histories() -> None:
    """Use a template that numbers its turns: it searches for no string, but renders every turn differently."""
    tokenizer = tokenizer_of("chatml")
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}"
        "{% if loop.index > 3 %}{{ loop.index }}{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    renderer = Renderer(tokenizer, options={"chat_template": template})
    assert renderer.tests is not None
    assert renderer.separator(system=False, role="user") is None

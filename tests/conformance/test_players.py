"""Test the unskilled players: the parts of an observation that the echo player uses, and their format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.conformance import success_rate
from palestra.conformance.players import PARTS, constant_strategies, echo_reply, echo_strategies
from palestra.conformance.rates import Rate, best_rate
from tests.conformance.defective_envs import RewardsCopies, SameAnswer, Sound

TEXT = 'Evaluate 4 + 99 - 7 or gcd(710, 80). Is "yes" or no right?\n(A) Paris\n(B) the city of Rome'


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("first number", "4"),
        ("largest number", "710"),
        ("smallest number", "4"),
        ("expression", "4 + 99 - 7"),
        ("function call", "gcd(710, 80)"),
        ("first quotation", "yes"),
        ("first list item", "Paris"),
        ("last name", "Rome"),
        ("last line", "(B) the city of Rome"),
        ("last alternative", "no"),
    ],
)
def test_parts_of_an_observation(part: str, found: str) -> None:
    assert PARTS[part](TEXT) == found


@given(
    st.text()
    | st.lists(st.sampled_from(["3.3.333", "-", "1/2/3", "1,000,", "or ", "[", "]", "\n", "A b"])).map("".join)
)
def test_parts_of_any_text(text: str) -> None:
    for extract in PARTS.values():
        assert extract(text) is None or isinstance(extract(text), str)


def test_replies_use_the_format_of_the_environment() -> None:
    prompt = RewardsCopies().reset(seed=1)[0]
    assert echo_reply(RewardsCopies(), prompt, "first text in brackets") == "\\boxed{word}"  # the example
    webshop: Any = palestra.make("webshop:Shop-v0")
    observation, _ = webshop.reset(seed=1)
    replies = [strategy(webshop, observation) for strategy in echo_strategies(webshop)]
    assert any(reply.startswith("search[") for reply in replies)
    assert any(reply.startswith("click[") for reply in replies)


def test_rates_are_those_of_the_best_strategy() -> None:
    assert success_rate(RewardsCopies(), "echo", range(10)).value == 1.0
    assert success_rate(RewardsCopies(), "constant", range(10)).value == 0.0
    assert success_rate(SameAnswer(), "constant", range(10)).value == 1.0
    assert success_rate(Sound(), "expert", range(10), seconds=0.0).episodes == 3
    strategies = constant_strategies([["\\boxed{1}", "\\boxed{2}"], ["\\boxed{1}"]])
    assert len(strategies) == 2
    assert best_rate(Sound(), strategies, range(40)).value < 0.4


def test_measurements_far_above_the_stated_rate() -> None:
    assert Rate(8, 8).exceeds(0.1)
    assert not Rate(3, 8).exceeds(0.2)
    assert Rate(8, 8).exceeds(0.35, alpha=1e-3)

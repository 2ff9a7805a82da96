"""Test WebShop's pages, clicks, options, purchases and invalid actions."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.webshop.env import WebShop, read_action
from palestra.errors import BadValue, UnknownKeyword


def make_env(**options: Any) -> WebShop:
    return WebShop(**{"products": 200, "data_split": "all", **options})


def goal_with_options(env: WebShop) -> int:
    return next(n for n, goal in enumerate(env.shop.goals) if len(goal.options) >= 2)


def test_a_complete_purchase() -> None:
    env = make_env()
    prompt, info = env.reset(options={"goal": goal_with_options(env)})
    assert isinstance(prompt, str)
    assert info["instruction"] in prompt
    assert info["clickables"] == []
    goal = env.goal
    results = env.step(f"search[{goal.name}]")
    assert results.info["clickables"][0] == "Back to Search"
    assert goal.asin in results.info["clickables"]
    item = env.step(f"click[{goal.asin.lower()}]")  # case does not matter
    assert goal.name in str(item.observation)
    features = env.step("click[features]")
    assert all(line in str(features.observation) for line in env.product.bullet_points)
    assert env.step("click[< Prev]").observation == item.observation
    chosen = env.step(f"click[{goal.options[0]}]")
    assert f"[clicked button] {goal.options[0]} [clicked button_]" in str(chosen.observation)
    for option in goal.options[1:]:
        env.step(f"click[{option}]")
    last = env.step("click[Buy Now]")
    assert (last.reward, last.terminated, last.info["success"], last.info["ending"]) == (1.0, True, True, "solved")
    assert last.info["r_type"] == last.info["r_att"] == last.info["r_option"] == 1


def test_buying_without_options_earns_partial_reward() -> None:
    env = make_env()
    env.reset(options={"goal": goal_with_options(env)})
    env.step(f"search[{env.goal.name}]")
    env.step(f"click[{env.goal.asin}]")
    last = env.step("click[Buy Now]")
    parts = len(env.goal.attributes) + len(env.goal.options) + 1
    assert last.reward == pytest.approx((len(env.goal.attributes) + 1) / parts)
    assert (last.info["success"], last.info["ending"], last.info["r_option"]) == (False, "lost", 0)


def test_options_are_replaced_and_reset_with_the_page() -> None:
    env = make_env()
    env.reset(options={"goal": goal_with_options(env)})
    env.step(f"search[{env.goal.name}]")
    env.step(f"click[{env.goal.asin}]")
    name, values = next((name, values) for name, values in env.product.options if len(values) > 1)
    env.step(f"click[{values[0]}]")
    env.step(f"click[{values[1]}]")
    assert env.chosen == {name: values[1]}
    env.step("click[< Prev]")
    env.step(f"click[{env.goal.asin}]")
    assert env.chosen == {}


def test_pages_of_results() -> None:
    env = make_env(max_turns=40)
    env.reset(seed=1)
    first = env.step("search[easy color size black]").info["clickables"]
    assert "< Prev" not in first
    seen = [asin for asin in first if asin.startswith("B0")]
    total = 0
    while "Next >" in env.clickables():
        step = env.step("click[Next >]")
        seen += [asin for asin in step.info["clickables"] if asin.startswith("B0")]
        total += 1
    assert total == 4
    assert len(seen) == len(set(seen)) == 50
    for _ in range(total):
        last = env.step("click[< Prev]")
    assert last.info["clickables"] == first
    visited = env.step(f"click[{seen[0]}]")
    assert f"[clicked button] {seen[0]} [clicked button_]" in str(env.step("click[< Prev]").observation)
    assert visited.reward == 0


@pytest.mark.parametrize(
    ("action", "invalid", "expected"),
    [
        ("", "format", "search[keywords] or click[value]"),
        ("I would like to look around first.", "format", "search[keywords] or click[value]"),
        ("click[Buy Now]", "rule", "Nothing can be clicked here"),  # no product is open
        ("click[Search]", "rule", "Nothing can be clicked here"),
        ("click[B000000000]", "rule", "'B000000000'"),
        ("search[]", "rule", "needs keywords"),
        ("search[   ]", "rule", "needs keywords"),
        ("buy[Buy Now]", "format", "search[keywords]"),
    ],
)
def test_bad_actions_get_feedback_and_change_nothing(action: str, invalid: str, expected: str) -> None:
    env = make_env()
    env.reset(seed=1)
    step = env.step(action)
    assert (step.info["invalid"], step.reward, step.done) == (invalid, 0.0, False)
    assert expected in str(step.observation)
    assert env.goal.instruction in str(step.observation)  # the page is displayed again
    assert env.location == "search"


def test_only_elements_of_the_page_can_be_clicked() -> None:
    env = make_env()
    env.reset(seed=1)
    here = env.step("search[lamp]").info["clickables"]
    elsewhere = next(product.asin for product in env.shop.products if product.asin not in here)
    step = env.step(f"click[{elsewhere}]")
    assert step.info["invalid"] == "rule"
    assert here[3] in str(step.observation)
    assert env.step("click[Description]").info["invalid"] == "rule"
    assert env.location == "results"


def test_a_search_without_results_has_a_back_button() -> None:
    env = make_env()
    env.reset(seed=1)
    step = env.step("search[qqqzzz]")
    assert step.info["clickables"] == ["Back to Search"]
    assert "Total results: 0" in str(step.observation)
    assert env.step("click[back to search]").info["clickables"] == []


def test_a_bad_action_ends_the_episode_of_gems_ids() -> None:
    env = palestra.make("webshop:train-text")
    env.reset(seed=1)
    step = env.step("click[nothing]")
    assert (step.reward, step.terminated, step.info["ending"]) == (-0.1, True, "lost")
    env.reset(seed=1)
    assert env.step("hm").info["ending"] == "format"


def test_turns_run_out() -> None:
    env = make_env(max_turns=2)
    env.reset(seed=1)
    env.step("search[lamp]")
    step = env.step("click[Back to Search]")
    assert (step.terminated, step.info["ending"], step.reward) == (True, "out_of_turns", 0.0)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("search[red shoes]", ("search", "red shoes")),
        ("I think so.\nAction: Click[Buy Now]", ("click", "Buy Now")),
        (r"\boxed{search[a]} or rather \boxed{click[b]}", ("click", "b")),
        ("click[iphone [6.1 inch]]", ("click", "iphone [6.1 inch]")),
        ("search[a] click[unclosed", ("search", "a")),
        ("research[x]", None),
        ("click]x[", None),
        ("", None),
    ],
)
def test_actions_are_parsed(reply: str, action: tuple[str, str] | None) -> None:
    assert read_action(reply) == action


@given(st.text(alphabet="searchlik[] \n]", max_size=200))
def test_any_reply_can_be_parsed(reply: str) -> None:
    action = read_action(reply)
    assert action is None or (action[0] in ("search", "click") and action[1] == action[1].strip())


class Page(HTMLParser):
    """Collect the clickable elements on an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.clickables: list[str] = []
        self.ids: set[str] = set()
        self.open: list[str] = []
        self._last: dict[str, str | None] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.ids.add(attributes.get("id") or "")
        if tag == "input" and attributes.get("type") == "radio":
            self.clickables.append(attributes["value"] or "")
        if tag not in ("input", "!doctype"):
            self.open.append(tag)
            self._last = attributes

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and (
            self.open[-1] == "button" or (self.open[-1] == "a" and self._last["class"] == "product-link")
        ):
            self.clickables.append(data)


def test_the_three_modes_show_the_same_page() -> None:
    envs = {mode: make_env(mode=mode) for mode in ("text", "text_rich", "html")}
    number = goal_with_options(envs["text"])
    shown: dict[str, str] = {}
    for mode, env in envs.items():
        prompt, _ = env.reset(options={"goal": number})
        assert isinstance(prompt, str)
        shown[mode] = prompt
    assert "WebShop [SEP] Instruction: [SEP]" in shown["text"]
    assert "search_input" in Page(shown["html"][shown["html"].index("<!DOCTYPE") :]).ids
    goal = envs["text"].goal
    for action in (f"search[{goal.name}]", f"click[{goal.asin}]", f"click[{goal.options[0]}]", "click[Reviews]"):
        for mode, env in envs.items():
            shown[mode] = str(env.step(action).observation)
        clickables = envs["html"].clickables()
        page = Page(shown["html"])
        assert page.clickables == clickables
        assert page.open == []
        texts = shown["text"].split(" [SEP] ")
        assert [text for text in texts if text in clickables][: len(clickables)] == clickables
        rich = [line.strip() for line in shown["text_rich"].splitlines() if "button" in line]
        assert [line.split("] ", 1)[1].rsplit(" [", 1)[0] for line in rich] == clickables


def test_the_expert_succeeds_from_any_page() -> None:
    """The expert buys a correct product even after random actions."""
    for seed in range(30):
        env = make_env(max_turns=60)
        env.reset(seed=seed)
        for _ in range(seed % 7):
            action = env.sample_random_action()
            if action != "click[Buy Now]":
                env.step(action)
        step = env.step(env.expert_action() or "")
        while not step.done:
            step = env.step(env.expert_action() or "")
        assert step.reward == 1.0


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_expert_solves_every_goal_of_a_split(split: str) -> None:
    env = palestra.make("webshop:Shop-v0", data_split=split)
    shop_env = env.unwrapped
    assert isinstance(shop_env, WebShop)
    count = len(shop_env.shop.split(split))
    seen = set()
    for seed in range(count):
        _, info = env.reset(seed=seed)
        seen.add(info["goal"])
        done = False
        while not done:
            step = env.step(env.expert_action() or "")
            done = step.done
        assert step.reward == 1.0
    assert seen == set(shop_env.shop.split(split))  # the first seeds visit every goal once


def test_a_selected_goal_is_repeated_by_its_seed() -> None:
    env = make_env()
    prompt, info = env.reset(options={"goal": 17})
    assert env.reset(seed=info["seed"])[0] == prompt
    assert info["goal"] == 17
    with pytest.raises(BadValue, match="`goal` must be from"):
        env.reset(options={"goal": 10_000})
    with pytest.raises(BadValue, match="unknown reset options"):
        env.reset(options={"gaol": 1})


def test_show_attributes_adds_a_page() -> None:
    env = make_env(show_attributes=True)
    env.reset(seed=1)
    env.step(f"search[{env.goal.name}]")
    env.step(f"click[{env.goal.asin}]")
    step = env.step("click[Attributes]")
    assert all(attribute in str(step.observation) for attribute in env.product.attributes)


def test_rendering() -> None:
    env = make_env(mode="text")
    assert env.render() is None
    env.reset(seed=1)
    assert "[button] Search [button_]" in str(env.render())
    assert str(env.render("html")).startswith("<!DOCTYPE html>")
    assert env.render("image") is None


def test_wrong_arguments_raise() -> None:
    with pytest.raises(BadValue, match="`mode` must be one of"):
        make_env(mode="txt")
    with pytest.raises(BadValue, match="`data_split` must be one of"):
        make_env(data_split="training")
    with pytest.raises(UnknownKeyword, match="products"):
        palestra.make("webshop:Shop-v0", product=5)


def test_invalid_actions_up_to_the_tolerance_do_not_end_the_episode() -> None:
    env = palestra.make("webshop:train-text", products=100, error_tolerance=2)
    env.reset(seed=0)
    for _ in range(2):
        step = env.step("click[nothing]")
        assert step.info["invalid"] == "rule"
        assert step.reward == -0.1
        assert not step.done
    assert env.step("no action").info["ending"] == "format"
    with pytest.raises(BadValue, match="`error_tolerance` must be"):
        palestra.make("webshop:train-text", error_tolerance=-1)


def test_without_shuffle_a_seed_is_the_number_of_a_goal() -> None:
    env = palestra.make("webshop:Shop-v0", products=100, data_split="all", shuffle=False)
    assert [env.reset(seed=seed)[1]["goal"] for seed in (0, 7, env.num_tasks)] == [0, 7, 0]
    assert env.reset(options={"goal": 9})[1]["seed"] == 9

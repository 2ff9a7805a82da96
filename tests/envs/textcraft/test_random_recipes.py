"""Test that random recipes can be followed, differ between episodes, and are not part of the test split."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.textcraft.crafting import steps_to
from palestra.envs.textcraft.random_recipes import MAX_ITEMS, RandomRecipes
from palestra.envs.textcraft.recipes import load_recipe_book
from palestra.errors import BadValue

BOOK = load_recipe_book(None)


def make(depth: int = 2, **options: Any) -> Any:
    return palestra.make(f"textcraft:Depth{depth}-v0", **{"split": "train", "random_recipes": 1.0, **options})


@given(seed=st.integers(0, 10_000), depth=st.integers(1, 4), feedback=st.sampled_from(["hints", "agentgym"]))
def test_the_expert_only_needs_the_prompt(seed: int, depth: int, feedback: str) -> None:
    env = make(depth, feedback=feedback)
    prompt, info = env.reset(seed=seed)
    assert f"Goal: craft {info['goal']}." in prompt
    assert info["depth"] == depth
    while env.unwrapped.ending is None:
        action = env.expert_action()
        verb, _, rest = action.partition(" ")
        for part in rest.replace(" using ", ", ").split(", "):
            assert part.partition(" ")[2] in prompt, action  # every name in an action is in the prompt
        step = env.step(action)
        assert step.observation.startswith("Got" if verb == "get" else "Crafted")
    assert env.unwrapped.ending == "solved"


@given(
    seed=st.integers(0, 10_000),
    depth=st.integers(1, 4),
    distractors=st.integers(0, 10),
    max_steps=st.integers(1, 20),
    once=st.booleans(),
)
def test_plans_are_short_and_have_the_depth_of_the_goal(
    seed: int, depth: int, distractors: int, max_steps: int, once: bool
) -> None:
    drawn = RandomRecipes(BOOK, depth=depth, distractors=distractors, max_steps=max_steps, rng=Random(seed), once=once)
    book = drawn.book()
    steps = steps_to(drawn.goal, drawn.route, {}, once=once)
    assert len(steps) <= max(max_steps, depth + 1)
    assert all(int(word) <= MAX_ITEMS for step in steps for word in step.split() if word.isdigit())

    def depth_of(item: str) -> int:
        if item not in drawn.route:
            assert item not in book.recipes  # it can be collected
            return 0
        recipe, options = drawn.route[item]
        assert all(option in ingredient.options for ingredient, option in zip(recipe.ingredients, options, strict=True))
        return 1 + max(depth_of(option) for option in options)

    assert depth_of(drawn.goal) == book.depth[drawn.goal] == depth
    assert len(drawn.others) == distractors
    used = {option for _, options in drawn.route.values() for option in options}
    for recipe in drawn.others:
        assert recipe.item not in used | {drawn.goal}
        assert used & {option for ingredient in recipe.ingredients for option in ingredient.options}
    assert len(book.recipes) == len(drawn.route) + distractors  # one recipe per item


def test_recipes_differ_between_episodes_and_depend_on_the_seed() -> None:
    env = make()
    prompts = [env.reset(seed=seed)[0] for seed in range(30)]
    assert len(set(prompts)) == 30
    assert [env.reset(seed=seed)[0] for seed in range(30)] == prompts
    assert len({env.reset(seed=seed)[1]["task_id"] for seed in range(30)}) == 30


def test_errors_and_hints_show_the_random_recipes() -> None:
    env = make()
    prompt, info = env.reset(seed=1)
    observation = env.step(f"get 1 {info['goal']}").observation
    assert observation.startswith(f"{info['goal']} cannot be collected, only crafted: craft")
    assert observation.partition("crafted: ")[2].removesuffix(".") in prompt
    real = next(item for item in BOOK.recipes if item not in env.unwrapped.book.recipes)
    assert env.step(f"get 1 {real.replace('_', ' ')}").observation.startswith("Got 1")  # it has no recipe here


def test_partial_credit_follows_the_random_plan() -> None:
    env = make(partial_credit=True, success_reward=2.0)
    for seed in range(10):
        env.reset(seed=seed)
        rewards = []
        while env.unwrapped.ending is None:
            rewards.append(env.step(env.expert_action()).reward)
        assert sum(rewards) == pytest.approx(2.0)
        assert all(reward > 0 for reward in rewards)


def test_a_fork_and_a_snapshot_have_the_same_recipes() -> None:
    env = make()
    env.reset(seed=3)
    env.step(env.expert_action())
    fork, restored = env.fork(), type(env).restore(env.snapshot())
    while env.unwrapped.ending is None:
        action = env.expert_action()
        assert fork.expert_action() == restored.expert_action() == action
        step = env.step(action)
        assert fork.step(action) == restored.step(action) == step


def test_the_fraction_of_episodes_with_random_recipes() -> None:
    env = make(random_recipes=0.5)
    drawn = sum(env.reset(seed=seed)[0] and env.unwrapped.book is not BOOK for seed in range(60))
    assert 15 < drawn < 45
    env.reset(seed=0, options={"goal": "oak_sign"})
    assert env.unwrapped.book is BOOK


def test_goals_of_any_depth_are_drawn_without_a_depth() -> None:
    env = palestra.make("textcraft:All-v0", split="train", random_recipes=1.0)
    assert {env.reset(seed=seed)[1]["depth"] for seed in range(40)} == {1, 2, 3, 4}


def test_the_test_split_has_the_real_recipes() -> None:
    env, reference = make(split="test"), palestra.make("textcraft:Depth2-v0", split="test")
    assert [env.reset(seed=seed) for seed in range(5)] == [reference.reset(seed=seed) for seed in range(5)]


def test_a_folder_with_few_items_is_reported(tmp_path: Path) -> None:
    for number in range(4):
        recipe = {
            "type": "minecraft:crafting_shapeless",
            "ingredients": [{"item": f"minecraft:thing_{number}"}],
            "result": {"item": f"minecraft:thing_{number + 1}"},
        }
        (tmp_path / f"{number}.json").write_text(json.dumps(recipe))
    env = make(1, folder=str(tmp_path))
    with pytest.raises(BadValue, match="only 5 items, which are too few for random recipes; use random_recipes=0"):
        [env.reset(seed=seed) for seed in range(5)]


@pytest.mark.parametrize("fraction", [-0.1, 1.5, "half"])
def test_random_recipes_must_be_a_fraction(fraction: Any) -> None:
    with pytest.raises(BadValue, match="fraction from 0 to 1"):
        make(random_recipes=fraction)

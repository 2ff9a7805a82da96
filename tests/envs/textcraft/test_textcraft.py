"""Test TextCraft's actions, feedback, goals and expert."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import BadValue


def start(depth: int = 2, seed: int = 0, **options: Any) -> Any:
    env = palestra.make(f"textcraft:Depth{depth}-v0")
    env.reset(seed=seed, options=options or None)
    return env


def test_an_episode_by_hand() -> None:
    env = start(goal="oak_sign")
    assert env.step("get 2 oak log").observation == "Got 2 oak log."
    assert env.step("craft 8 oak planks using 2 oak log").observation == "Crafted 8 oak planks."
    assert env.step("craft 4 stick using 2 planks").observation == "Crafted 4 stick."  # any items with the tag are used
    assert env.step("inventory").observation == "You have: 6 oak planks, 4 stick."
    last = env.step("Thought: all there.\nAction: craft 3 oak sign using 6 oak planks, 1 stick")
    assert (last.reward, last.terminated, last.info["success"]) == (1.0, True, True)


def test_partial_credit_rewards_each_finished_step_of_the_plan_once() -> None:
    env: Any = palestra.make("textcraft:Depth2-v0", partial_credit=True)
    env.reset(seed=0, options={"goal": "white_terracotta"})
    rewards = {
        "get 3 terracotta": 0.0,  # the plan needs eight
        "get 5 terracotta": 0.25,
        "get 1 stick": 0.0,
        "get 1 lily of the valley": 0.25,
        "craft 1 white dye using 1 lily of the valley": 0.25,
        "get 1 lily of the valley ": 0.0,  # no step of the plan
        "craft 8 white terracotta using 8 terracotta, 1 white dye": 0.25,
    }
    for action, reward in rewards.items():
        assert env.step(action).reward == pytest.approx(reward), action
    assert env.ending == "solved"


def test_partial_credit_for_a_goal_that_was_crafted_without_the_plan() -> None:
    env: Any = palestra.make("textcraft:Depth2-v0", partial_credit=True)
    env.reset(seed=0, options={"goal": "oak_sign"})  # the plan crafts sticks from bamboo, in two of its six steps
    actions = ["get 2 oak log", "craft 8 oak planks using 2 oak log", "craft 4 stick using 2 oak planks"]
    actions.append("craft 3 oak sign using 6 oak planks, 1 stick")
    assert [env.step(action).reward for action in actions] == pytest.approx([1 / 6, 2 / 6, 2 / 6, 1 / 6])


def test_partial_credit_counts_each_application_of_a_recipe() -> None:
    options = {"goal": "crimson_fence_gate"}  # the plan crafts four sticks
    env: Any = palestra.make("textcraft:Depth2-v0", partial_credit=True)
    env.reset(seed=3, options=options)
    actions = ["get 8 bamboo", *["craft 1 stick using 2 bamboo"] * 5]
    assert [env.step(action).reward for action in actions] == pytest.approx([1 / 8] * 5 + [0.0])
    env.reset(seed=3, options=options)
    assert [env.step(action).reward for action in (actions[0], "craft 4 stick using 8 bamboo")] == [0.125, 0.5]


def test_the_goal_earns_the_success_reward_minus_the_partial_credit() -> None:
    env: Any = palestra.make("textcraft:Depth2-v0", partial_credit=True, success_reward=2.0)
    assert env.reward_range == (0.0, 2.0)
    env.reset(seed=0)
    rewards = []
    while env.unwrapped.ending is None:
        rewards.append(env.step(env.unwrapped.expert_action()).reward)
    assert sum(rewards) == pytest.approx(2.0)
    assert rewards[-1] > 1.0


@pytest.mark.parametrize(
    ("action", "expected", "kind"),
    [
        ("", "No action found", "format"),
        ("dance", 'There is no action "dance"', "format"),
        ("get 2 oak planks", "cannot be collected, only crafted: craft 4 oak planks using 1 oak logs", "rule"),
        ("get 2 oak plonks", "Did you mean oak planks?", "rule"),
        ("get 0 oak log", "1 to 10000", "rule"),
        ("get 99999999 oak log", "1 to 10000", "rule"),
        ("craft 4 stick using 2 oak planks", "You have 0 oak planks, not 2.", "rule"),
        ("craft 4 stick using 2 planks", "You have 0 planks, not 2.", "rule"),
        ("craft 1 oak log using 1 stick", "has no recipe; collect it", "rule"),
        ("get 999999999999 oak log", "You can get 1 to 10000 items at a time", "rule"),
        ("craft 1 castle using 4 oak log", 'There is no item "castle"', "rule"),
        ("craft 1 stick using 1 oak log", "That is not a recipe for stick. A valid recipe: craft", "rule"),
        ("craft 5 oak planks using 1 oak log", "These ingredients make 4 oak planks, not 5.", "rule"),
        ("craft 1 stick using ,", "counts and items separated by commas", "format"),
        ("craft 1 stick using 2 dreams", 'There is no item "dreams"', "rule"),
    ],
)
def test_bad_actions_get_feedback_and_change_nothing(action: str, expected: str, kind: str) -> None:
    env = start(goal="oak_sign")
    env.step("get 3 oak log")
    before = dict(env.inventory)
    step = env.step(action)
    assert expected in step.observation
    assert (step.reward, step.info["invalid"], step.terminated) == (0.0, kind, False)
    assert env.inventory == before


def test_get_accepts_tags() -> None:
    assert start().step("get 2 oak logs").observation == "Got 2 oak log."
    assert "only crafted" in start().step("get 2 planks").observation


def test_getting_the_goal_item_is_not_crafting_it() -> None:
    env = start(goal="iron_block")
    assert not env.step("get 1 iron block").terminated
    with pytest.raises(BadValue, match="cannot be crafted"):
        start(goal="oak_log")


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_expert_uses_only_shown_recipes(depth: int) -> None:
    env = start(depth)
    for seed in range(60):
        _, info = env.reset(seed=seed)
        assert info["depth"] == depth
        craftable = {recipe.item for recipe in env.shown}
        while True:
            action = env.expert_action()
            if action.startswith("craft"):
                assert action.partition(" using")[0].split(" ", 2)[2].replace(" ", "_") in craftable
            step = env.step(action)
            assert "invalid" not in step.info
            if step.terminated:
                break
        assert step.info["success"]


@given(seed=st.integers(0, 10**6), actions=st.integers(0, 25))
def test_the_expert_continues_from_any_state(seed: int, actions: int) -> None:
    env = palestra.make("textcraft:Depth3-v0", max_turns=60)
    env.reset(seed=seed)
    for _ in range(actions):
        if env.step(env.sample_random_action()).terminated:
            return
    for _ in range(30):
        step = env.step(env.expert_action() or "")
        assert "invalid" not in step.info
        if step.terminated:
            break
    assert step.info["success"]


def test_distractors_share_ingredients_and_are_not_needed() -> None:
    env = palestra.make("textcraft:Depth2-v0", distractors=4)
    none: Any = palestra.make("textcraft:Depth2-v0", distractors=0)
    for seed in range(30):
        env.reset(seed=seed)
        none.reset(seed=seed)
        assert none.goal == env.goal  # type: ignore[attr-defined]
        needed = {recipe.item for recipe in none.shown}
        others = [recipe for recipe in env.shown if recipe.item not in needed]  # type: ignore[attr-defined]
        assert len(others) <= 4
        uses = {option for recipe in none.shown for one in recipe.ingredients for option in one.options}
        assert all(uses & {option for one in recipe.ingredients for option in one.options} for recipe in others)


def test_all_goals_of_a_depth_are_drawn() -> None:
    env = start(4)
    goals = set()
    for seed in range(200):
        goals.add(env.reset(seed=seed)[1]["goal"])
    assert len(goals) == 11


def test_wrong_arguments_raise() -> None:
    with pytest.raises(BadValue, match="`depth` must be an integer from 1 to 4"):
        palestra.make("textcraft:Depth1-v0", depth=5)
    with pytest.raises(BadValue, match="distractors"):
        palestra.make("textcraft:Depth1-v0", distractors=-1)
    with pytest.raises(BadValue, match="reset options"):
        palestra.make("textcraft:Depth1-v0").reset(seed=0, options={"gaol": 1})


def test_render() -> None:
    env = start(goal="oak_sign")
    assert env.render() == "Goal: craft oak sign.\nYou have nothing."
    assert env.render("image") is None


def test_goals_of_the_splits_are_disjoint() -> None:
    for depth in (1, 2, 3, 4, None):
        goals = {
            split: {env.reset(seed=seed)[1]["goal"] for seed in range(600)}
            for split in ("train", "test")
            for env in [palestra.make("textcraft:All-v0", depth=depth, split=split)]
        }
        assert goals["train"]
        assert goals["test"]
        assert not goals["train"] & goals["test"]


def test_the_task_is_the_goal() -> None:
    env = palestra.make("textcraft:Depth2-v0")
    ids: dict[str, str] = {}
    for seed in range(300):
        _, info = env.reset(seed=seed)
        assert ids.setdefault(info["goal"], info["task_id"]) == info["task_id"]
    assert len(set(ids.values())) == len(ids)


def test_all_goals_are_numbered_by_depth() -> None:
    env: Any = palestra.make("textcraft:All-v0", order="agentgym")
    infos = [env.reset(seed=seed)[1] for seed in range(env.num_tasks)]
    assert len({info["goal"] for info in infos}) == env.num_tasks
    assert [info["depth"] for info in infos] == sorted(info["depth"] for info in infos)
    assert env.reset(seed=env.num_tasks + 3)[1]["goal"] == infos[3]["goal"]


def test_feedback_of_agentgym_hides_recipes() -> None:
    env = palestra.make("textcraft:Depth2-v0", feedback="agentgym")
    env.reset(seed=0, options={"goal": "oak_sign"})
    for action, reply in (
        ("get 1 oak sign", "Could not find oak sign"),
        ("get 1 unobtainium", "Could not find unobtainium"),
        ("craft 4 stick using 2 oak planks", "Could not find enough items to craft stick"),
        ("craft 1 oak log using 1 stick", "Could not find a valid recipe for oak log"),
        ("get 2 oak log", "Got 2 oak log."),
        ("craft 1 oak sign using 2 oak log", "Could not find a valid recipe for oak sign"),
        ("craft 8 oak planks using 2 oak log", "Could not find a valid recipe for oak planks"),  # two at once
        ("craft 4 oak planks using 1 oak log", "Crafted 4 oak planks."),
    ):
        assert env.step(action).observation == reply
    with pytest.raises(BadValue, match="`feedback` must be one of hints, agentgym"):
        palestra.make("textcraft:Depth2-v0", feedback="none")


def test_the_expert_solves_every_goal_with_the_rules_of_agentgym() -> None:
    env: Any = palestra.make("textcraft:All-v0", feedback="agentgym", order="agentgym")
    for seed in range(0, env.num_tasks, 9):
        env.reset(seed=seed)
        step = env.step(env.expert_action())
        while not step.done:
            step = env.step(env.expert_action())
        assert step.info["success"]
